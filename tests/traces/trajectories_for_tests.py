"""Strategies for trajectories: anything that the record allows, however odd."""

from datetime import UTC, timedelta, timezone

from hypothesis import strategies as st

from patchgym.records import (
    Action,
    Attachment,
    Fault,
    Message,
    Observation,
    Origin,
    Outcome,
    PolicyRef,
    Reward,
    Sampling,
    SpawnedBy,
    Step,
    StepTokens,
    StopReason,
    Stream,
    Tally,
    Term,
    TestReport,
    Timing,
    ToolCall,
    ToolSpec,
    Trajectory,
    Usage,
    Verdict,
)

TEXT = st.sampled_from(
    [
        "",
        "a",
        "b",
        "\r\n",
        "\ufeffbom",
        "\u2028",
        "\x00",
        "[bold]x[/]",
        "\x1b[31m",
        "$is",
        "é\n",
        "😀",
        "```\nls\n```",
        "{}",
    ]
)
NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("$is"), inner, max_size=3),
    max_leaves=3,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=2)
COUNTS = st.dictionaries(NAMES, st.integers(0, 9), max_size=2)
IDS = st.lists(st.integers(0, 9), max_size=4).map(tuple)
TIMES = st.datetimes(timezones=st.just(UTC)) | st.datetimes(
    timezones=st.just(timezone(timedelta(hours=-5, minutes=-30)))
)
SECONDS = st.none() | st.floats(0, 1e6)
HEX = st.none() | st.sampled_from(["a" * 40, "b" * 40])


def _maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


CALLS = st.builds(ToolCall, id=TEXT, name=TEXT, arguments=TEXT | st.just('{"a": 1}'))
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXT,
    reasoning=_maybe(TEXT),
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    tool_call_id=_maybe(TEXT),
    sampled_ids=_maybe(IDS),
    attachments=st.lists(
        st.builds(Attachment, media_type=TEXT, size=_maybe(st.integers(0, 9)), blob=HEX), max_size=1
    ).map(tuple),
)
ACTIONS = st.builds(Action, tool=TEXT, arguments=OBJECTS, call_id=_maybe(TEXT))
STREAMS = st.builds(Stream, text=TEXT, size=st.integers(0, 99), blob=HEX, cut=st.booleans())
OBSERVATIONS = st.builds(
    Observation,
    shown=TEXT,
    ok=_maybe(st.booleans()),
    exit_code=_maybe(st.integers(-128, 255)),
    stdout=_maybe(STREAMS),
    stderr=_maybe(STREAMS),
    timed_out=st.booleans(),
    ending=TEXT,
    limits_by=TEXT,
    seconds=SECONDS,
    tests=_maybe(st.dictionaries(TEXT, st.sampled_from(Outcome), max_size=2)),
)
TOKENS = st.builds(
    StepTokens,
    prompt_ids=IDS,
    sampled_ids=IDS,
    logprobs=_maybe(st.lists(st.floats(-9, 0), max_size=4).map(tuple)),
    mask=st.lists(st.integers(0, 1), max_size=4).map(tuple),
    restart=st.booleans(),
)
REPORTS = st.builds(
    TestReport,
    verdict=st.sampled_from(Verdict),
    tests=st.dictionaries(TEXT, st.sampled_from(Outcome), max_size=3),
    fail_to_pass=st.builds(Tally, passed=st.integers(0, 2), total=st.integers(2, 3)),
    pass_to_pass=st.builds(Tally, passed=st.integers(0, 2), total=st.integers(2, 3)),
    hidden=st.builds(Tally, passed=st.integers(0, 2), total=st.integers(2, 3)),
    log=TEXT,
    seconds=SECONDS,
    grader_version=TEXT,
)
REWARDS = st.builds(
    Reward,
    value=_maybe(NUMBERS),
    gate=TEXT,
    terms=st.dictionaries(TEXT, st.builds(Term, raw=NUMBERS, weight=NUMBERS, value=NUMBERS, why=TEXT), max_size=2),
)


@st.composite
def steps(draw: st.DrawFn, index: int, *, line: bool) -> Step:
    """A step; on a ``line`` it follows the one before it, else any."""
    before = index - 1 if line else draw(st.integers(0, max(index - 1, 0)))
    root = index == 0 or (not line and draw(st.booleans()))
    return Step(
        index=index,
        parent=None if root else before,
        prompt=tuple(draw(st.lists(MESSAGES, max_size=2))),
        message=draw(MESSAGES),
        continues=draw(st.booleans()),
        compacted=draw(st.booleans()),
        action=draw(st.none() | ACTIONS),
        parse_error=draw(st.none() | TEXT),
        observation=draw(st.none() | OBSERVATIONS),
        state_before=draw(HEX),
        state_after=draw(HEX),
        changed_paths=draw(st.none() | st.lists(TEXT, max_size=2).map(tuple)),
        tokens=draw(st.none() | TOKENS),
        policy_version=draw(st.none() | TEXT),
        sampling=draw(st.none() | st.builds(Sampling, temperature=st.floats(0, 2), seed=st.integers(0, 9))),
        usage=draw(
            st.none()
            | st.builds(
                Usage,
                prompt_tokens=st.integers(0, 9),
                sampled_tokens=st.integers(0, 9),
                cached_tokens=st.none() | st.integers(0, 9),
            )
        ),
        sampling_seconds=draw(SECONDS),
        started_at=draw(st.none() | TIMES),
    )


@st.composite
def trajectories(draw: st.DrawFn, *, line: bool = False) -> Trajectory:
    """A trajectory of one to three steps: a line of them, or any tree."""
    count = draw(st.integers(1, 3))
    return Trajectory(
        id=draw(NAMES),
        phase=draw(TEXT),
        task_id=draw(TEXT),
        task_hash=draw(st.none() | TEXT),
        group_id=draw(TEXT),
        sample_index=draw(st.integers(0, 9)),
        policy=PolicyRef(spec=draw(TEXT), version=draw(st.none() | TEXT)),
        sandbox=draw(st.none() | TEXT),
        tools=tuple(draw(st.lists(st.builds(ToolSpec, name=TEXT, description=TEXT, parameters=OBJECTS), max_size=2))),
        steps=tuple(draw(steps(index, line=line)) for index in range(count)),
        final_state=draw(HEX),
        final_patch=draw(st.none() | TEXT),
        stop=draw(st.none() | st.sampled_from(StopReason)),
        status=draw(st.sampled_from(["completed", "infra_error"])),
        faults=tuple(draw(st.lists(st.builds(Fault, kind=TEXT, where=st.just("sandbox"), message=TEXT), max_size=1))),
        report=draw(st.none() | REPORTS),
        reward=draw(st.none() | REWARDS),
        reward_trusted=draw(st.booleans()),
        in_baseline=draw(st.booleans()),
        timing=draw(st.builds(Timing, started_at=st.none() | TIMES, total_seconds=SECONDS)),
        origin=draw(
            st.none()
            | st.builds(
                Origin, format=TEXT, file=TEXT, session=st.none() | TEXT, agent=st.none() | TEXT, left_out=COUNTS
            )
        ),
        spawned_by=draw(st.none() | st.builds(SpawnedBy, trajectory=TEXT, step=st.none() | st.integers(0, 3))),
        redacted=draw(st.none() | COUNTS),
    )
