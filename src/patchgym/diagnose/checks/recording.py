"""Step 2, ten rollouts: is every field of every step there, do the states follow each other, and is what infrastructure
did kept apart from what the policy did?"""

from collections import Counter
from collections.abc import Sequence

from patchgym.content import ObjectStore
from patchgym.diagnose.facts import Facts, TaskFacts
from patchgym.diagnose.rule import Rule, by_count, named_few
from patchgym.diagnose.seen import Edit, Seen
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.errors import DataError
from patchgym.records import Finding, StopReason, Verdict

_LOOKED_UP = 200
_WITHOUT_VALUE = (Verdict.INFRA_ERROR, Verdict.ABSTAINED)


def complete(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Every line can be read, and every step has every field."""
    rule = Rule(2, "complete", "every field of every step of what patchgym itself recorded", "article")
    damaged = [problem for problem in facts.problems if problem.endswith(("is left out", "the first one counts"))]
    if damaged:
        return rule.broken(
            f"{len(damaged)} lines of the run cannot be used: {damaged[0]}",
            "Collect those attempts again: the same command makes what is missing.",
            figures={"lines": len(damaged)},
        )
    if not facts.attempts:
        return rule.unknown("the run holds no trajectories", _where_from(facts))
    lacking = [one for one in facts.own if one.missing]
    counts: Counter[str] = Counter()
    for one in lacking:
        counts.update(one.missing)
    if lacking:
        told = ", ".join(f"{name} ({count})" for name, count in counts.most_common(4))
        return rule.broken(
            f"{len(lacking)} of {len(facts.own)} trajectories lack fields: {told}; the first is {lacking[0].id}",
            "Mend what records them: without these no step can be replayed or trained on.",
            [one.id for one in lacking],
            dict(counts),
        )
    if not facts.own:
        absent: Counter[str] = Counter(name for one in facts.attempts for name in one.missing)
        told = ", ".join(name.replace("_", " ") for name, _ in absent.most_common(4))
        return rule.unknown(
            f"{len(facts.attempts)} imported trajectories; their formats do not say: {told}"
            if told
            else f"{len(facts.attempts)} imported trajectories",
            "patchgym replay RUN --repos CLONES --out RUN2 makes their states.",
        )
    steps = sum(one.steps for one in facts.own)
    return rule.ok(f"{len(facts.own)} trajectories with {steps} steps lack nothing", {"steps": steps})


def states(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Each step begins where the one before it ended, and what an edit wrote stands in the state after it."""
    rule = Rule(2, "states", "0 trajectories whose states are stale, missing or do not follow each other", "article")
    own = [one for one in facts.own if one.steps]
    if not own:
        return rule.unknown("no step was recorded here")
    torn = [one for one in own if one.broken]
    if torn:
        return rule.broken(
            f"{len(torn)} of {len(own)} trajectories do not follow: {torn[0].id}: {torn[0].broken[0]}",
            "Steps are lost or their snapshots are of another time: mend what records them, then collect again.",
            [one.id for one in torn],
            {"trajectories": len(torn)},
        )
    stale, looked_up = _stale(own, facts.about)
    if stale:
        return rule.broken(
            f"{len(stale)} of {looked_up} states that were looked up are stale or missing: {stale[0][1]}",
            "Snapshots must be taken after the action is done: mend that, then collect again.",
            [name for name, _ in stale],
            {"states": len(stale)},
        )
    return rule.ok(
        f"the states of {len(own)} trajectories follow each other; {looked_up} were looked up",
        {"looked_up": looked_up},
        confidence=by_count(looked_up),
    )


def _stale(own: Sequence[Seen], about: TaskFacts) -> tuple[list[tuple[str, str]], int]:
    """Edits that are not in the state after them and states that are not there, of a sample spread over the run."""
    found: list[tuple[str, str]] = []
    count = 0
    if about.objects is None:
        return found, 0
    for one in own[:: max(1, len(own) // _LOOKED_UP)]:
        for edit in one.edits:
            count += 1
            if edit not in about.looked_up:
                about.looked_up[edit] = _missing_edit(edit, about.objects)
            if about.looked_up[edit]:
                found.append((one.id, f"{one.id}, step {edit.step}: {about.looked_up[edit]}"))
        if not one.edits:
            count += 1
            lost = [state for state in one.states if state not in about.objects]
            found += [(one.id, f"{one.id}: state {lost[0]} is not in the store")] if lost else []
    return found, count


def _missing_edit(edit: Edit, objects: ObjectStore) -> str:
    """What is wrong with the state after an edit; empty where nothing is. A path that is not there was changed by other
    means, or is written otherwise."""
    try:
        entry = objects.entries(edit.state).get(edit.path.removeprefix("./"))
        if entry is None:
            return ""
        text = objects.get(entry.id).decode("utf-8", "surrogateescape")
    except DataError as error:
        return str(error)
    return "" if edit.text in text else f"its edit of {edit.path} is not in the state after"


def replayed(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The certificate says that steps and verdicts come out the same again."""
    rule = Rule(
        2,
        "replay",
        f"{settings.replay_share:.0%} of the steps the same again, and every solution; of other verdicts "
        f"{settings.timeout_share:.0%} may change (time-outs do)",
        "article",
    )
    found = facts.certificate
    if found is None:
        return rule.unknown("the run was not replayed", "patchgym replay RUN --sample 30")
    share = found.share
    changed = found.verdicts - found.verdicts_same
    decided = [name for name, change in found.verdict_changes.items() if Verdict.RESOLVED in change.split(" -> ")]
    told = (
        f"{found.steps} steps of {found.trajectories} trajectories were done again, {found.diverged} came out "
        f"otherwise; {changed} of {found.verdicts} verdicts changed"
    )
    figures = {"steps": found.steps, "diverged": found.diverged, "verdicts_changed": changed}
    too_many = changed > settings.timeout_share * found.verdicts
    if (share is not None and share < settings.replay_share) or decided or too_many:
        reasons = ", ".join(f"{count} {name}" for name, count in list(found.reasons.items())[:2])
        return rule.broken(
            f"{told}{f' ({reasons})' if reasons else ''}",
            "Look at the differences in RUN/replay.json, and mend what records or what is not reproducible.",
            [*decided, *found.verdict_changes, *(one.trajectory for one in found.divergences)],
            figures,
        )
    return rule.ok(told, figures, confidence=by_count(found.steps))


def infrastructure(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Few attempts are lost to infrastructure, and none of them is counted as the policy's failure."""
    rule = Rule(
        2,
        "infrastructure",
        f"{settings.lost_share:.0%} of the attempts lost, none of them with a reward or in a baseline",
        "convention",
    )
    own = facts.own
    if not own:
        return rule.unknown("no attempt was made here")
    lost = [one for one in own if one.light.faults or one.light.status == "infra_error" or _says_nothing(one)]
    counted = [one for one in lost if one.value is not None or (one.light.faults and one.light.in_baseline)]
    if counted:
        return rule.broken(
            f"{len(counted)} attempts that infrastructure failed have a reward or enter a baseline: {counted[0].id}",
            "They are nobody's failure: leave them unscored (patchgym score RUN --out RUN2) and mend what counts them.",
            [one.id for one in counted],
            {"counted": len(counted), "lost": len(lost)},
        )
    faulty = [one for one in lost if one.light.faults or one.light.status == "infra_error"]
    figures = {"lost": len(faulty), "attempts": len(own)}
    if len(faulty) > settings.lost_share * len(own):
        first = faulty[0].light.faults[0] if faulty[0].light.faults else None
        why = f": {first.kind} in {first.where}: {first.message}" if first is not None else ""
        return rule.broken(
            f"{len(faulty)} of {len(own)} attempts were lost, the first {faulty[0].id}{why}",
            "Mend that first: patchgym doctor says what this machine lacks.",
            [one.id for one in faulty],
            figures,
            confidence=by_count(len(own)),
        )
    return rule.ok(f"{len(faulty)} of {len(own)} attempts were lost; none of them counts", figures)


def _says_nothing(one: Seen) -> bool:
    report = one.light.report
    return report is not None and (report.verdict in _WITHOUT_VALUE or report.timeout_of == "machine")


def timeouts(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Time-outs that the machine caused are rare: they look like failures and are none."""
    rule = Rule(2, "time-outs", f"{settings.timeout_share:.0%} of the attempts out of the machine's time", "article")
    own = facts.own
    if not own:
        return rule.unknown("no attempt was made here")
    slow = [one for one in own if _of_machine(one)]
    taken = [one for one in slow if one.value is not None and one.light.in_baseline]
    any_reason = sum(one.timed_out > 0 or one.whose_time is not None for one in own)
    figures = {"machine": len(slow), "any": any_reason, "taken_for_failures": len(taken), "attempts": len(own)}
    if len(slow) > settings.timeout_share * len(own):
        kinds = Counter(
            "tests time out before anything was changed"
            if one.idle_timeouts
            else f"the {one.whose_time or 'machine'}'s"
            for one in slow
        )
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        return rule.broken(
            f"{len(slow)} of {len(own)} attempts ran out of time that was not the policy's ({told}); {len(taken)} of "
            "them count as failures",
            "Lower the concurrency or raise the limits of the tasks, and mark them apart: patchgym traces clean RUN.",
            [one.id for one in slow],
            figures,
            confidence=by_count(len(own)),
        )
    return rule.ok(f"{any_reason} of {len(own)} attempts saw a time-out, {len(slow)} of them by the machine", figures)


def _of_machine(one: Seen) -> bool:
    report = one.light.report
    return (
        one.whose_time in ("sandbox", "endpoint")
        or one.idle_timeouts > 0
        or (report is not None and report.timeout_of == "machine")
    )


def readable(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Most messages of the newest round hold an action that can be read."""
    rule = Rule(
        2, "protocol", f"{settings.unreadable_share:.0%} of the steps of a round without an action", "convention"
    )
    rounds = {name: [one for one in facts.sampled if one.light.phase == name] for name in facts.rounds}
    name, last = next(((name, found) for name, found in reversed(rounds.items()) if found), ("", []))
    steps, unread = sum(one.steps for one in last), sum(one.steps - one.readable for one in last)
    if not steps:
        return rule.unknown("no model sampled here")
    ended = sum(one.light.stop is StopReason.PROTOCOL for one in last)
    told = f"{unread} of {steps} steps of {name} hold no action; {ended} of {len(last)} attempts ended for that"
    figures = {"unreadable": unread, "steps": steps}
    if unread > settings.unreadable_share * steps:
        return rule.broken(
            told,
            "The model does not keep the format: check its chat template and --protocol, or warm it up longer.",
            [one.id for one in last if one.readable < one.steps],
            figures,
            confidence=by_count(steps),
        )
    return rule.ok(told, figures, confidence=by_count(steps))


def copies(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The samples of a task are drawn apart, and none was recorded twice."""
    rule = Rule(
        2,
        "copies",
        f"0 attempts recorded twice or drawn with one seed; {settings.copies_share:.0%} of the samples of a task alike",
        "convention",
    )
    first_with: dict[bytes, Seen] = {}
    twice = [one for one in facts.own if one.steps and first_with.setdefault(one.whole, one) is not one]
    twice = [one for one in twice if one.light.tree_id is None]
    if twice:
        return rule.broken(
            f"{len(twice)} attempts are the same record as another, times and all: {twice[0].id} is "
            f"{first_with[twice[0].whole].id}",
            "Take them out: patchgym traces clean RUN --out RUN2 marks duplicates.",
            [one.id for one in twice],
            {"twice": len(twice)},
        )
    name = next(iter(facts.rounds), "")
    first = [one for one in facts.sampled if one.light.phase == name and one.temperature and one.light.tree_id is None]
    groups: dict[str, list[Seen]] = {}
    for one in first:
        groups.setdefault(one.light.group_id, []).append(one)
    groups = {key: members for key, members in groups.items() if len(members) > 1}
    size = sum(map(len, groups.values()))
    if not groups:
        return rule.unknown("no task was sampled twice with a temperature")
    same_seed = [key for key, members in groups.items() if len({one.seed for one in members}) < len(members)]
    alike = sum(len(members) - len({one.acts for one in members}) for members in groups.values())
    figures = {"alike": alike, "samples": size, "groups": len(groups)}
    if same_seed:
        return rule.broken(
            f"the samples of {len(same_seed)} of {len(groups)} tasks were drawn with the same seed: {same_seed[0]}",
            "Give every sample a seed of its own: copies of one attempt say nothing of its group.",
            same_seed,
            figures,
        )
    if alike > settings.copies_share * (size - len(groups)) and size >= settings.few:
        worst = sorted(groups, key=lambda key: len({one.acts for one in groups[key]}) / len(groups[key]))
        return rule.broken(
            f"{alike} of {size} samples of the first round repeat another of their task, action by action",
            "Does the sampler heed seed and temperature? If it does, raise the temperature.",
            worst,
            figures,
            confidence=by_count(size),
        )
    return rule.ok(f"{alike} of {size} samples of the first round repeat another of their task", figures)


def _where_from(facts: Facts) -> str:
    runs = facts.config.get("runs")
    if isinstance(runs, list) and runs:
        return f"It was trained on {named_few(map(str, runs))}: patchgym diagnose {runs[0]}"
    return "Collect some: patchgym rollout --help"
