"""A trajectory without secrets: its texts, what it names in an object store, and its token ids."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.records import Attachment, Message, Step, Stream, ToolCall, Trajectory
from patchgym.records.base import Record
from patchgym.redact import Redactor

R = TypeVar("R", bound=Record)

# Fields that hold names of patchgym's own and ids, and no text of anybody.
_KEPT = frozenset(
    {
        *("id", "phase", "task_id", "task_hash", "group_id", "sandbox", "status", "final_state", "state_before"),
        *("state_after", "blob", "media_type", "call_id", "tool_call_id", "role", "where", "kind", "ending"),
        *("limits_by", "format", "grader_version", "duplicate_of", "timeout_of"),
    }
)
_BINARY_HEAD = 8000
_FILE_MARKER = re.compile(r"<redacted:([a-z0-9_]+):([0-9]+)>")


class TrajectoryRedactor:
    """Redacts the trajectories of one run, which lie in ``source``, and puts what the redacted ones reach into
    ``target``. ``source`` is not changed."""

    def __init__(self, source: ObjectStore, target: ObjectStore, redactor: Redactor) -> None:
        self.source, self.target = source, target
        self._redactor = redactor
        self._counts: Counter[str] = Counter()
        self._blobs: dict[tuple[str, str | None], tuple[str, Counter[str]]] = {}
        self._own: dict[str, frozenset[bytes]] = {}
        self._trees: dict[tuple[str, str], str] = {}

    def redacted(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory without secrets, with the count of them.

        Raises:
            DataError: an object that it names is missing or damaged.
            StorageError: the disk is full.
        """
        self._counts = Counter(trajectory.redacted or {})
        trees = self._states(trajectory)
        patch = self._patch(trajectory, trees)
        walked = self._record(trajectory)
        steps = tuple(
            step.model_copy(
                update={
                    "state_before": trees.get(step.state_before or "", step.state_before),
                    "state_after": trees.get(step.state_after or "", step.state_after),
                }
            )
            for step in _without_ids(trajectory.steps, walked.steps, all_of_them=walked.tools is not trajectory.tools)
        )
        update: dict[str, object] = {
            "steps": steps,
            "final_state": trees.get(trajectory.final_state or "", trajectory.final_state),
            "final_patch": self._walk(patch),
            "redacted": dict(sorted(self._counts.items())),
        }
        if trajectory.origin is not None:
            update |= {name: self._name(getattr(trajectory, name)) for name in ("id", "task_id", "group_id")}
        if walked.spawned_by is not None:
            update["spawned_by"] = walked.spawned_by.model_copy(
                update={"trajectory": self._name(trajectory.spawned_by.trajectory if trajectory.spawned_by else "")}
            )
        return walked.model_copy(update=update)

    def _name(self, text: str) -> str:
        """A name that may be a file's."""
        return _FILE_MARKER.sub(r"redacted-\1-\2", self._redactor.text(text, self._counts))

    def _walk(self, value: Any) -> Any:
        """A value without secrets: the very same object where there are none."""
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self._redactor.text(value, self._counts)
        if isinstance(value, Record):
            return self._record(value)
        if isinstance(value, dict):
            pairs = [(self._walk(key), key, inner) for key, inner in value.items()]
            walked = {name: self._member(name, inner) for name, _, inner in pairs}
            same = all(name is key and walked[name] is inner for name, key, inner in pairs)
            return value if same else walked
        if isinstance(value, list | tuple):
            parts = [self._walk(part) for part in value]
            same = all(new is old for new, old in zip(parts, value, strict=True))
            return value if same else type(value)(parts)
        return value

    def _member(self, name: str, value: Any) -> Any:
        """A value of a JSON object; its name says what it is."""
        if isinstance(value, str) and not isinstance(value, Enum):
            return self._redactor.named(name, value, self._counts)
        return self._walk(value)

    def _record(self, record: R) -> R:
        update: dict[str, object] = {}
        for name in type(record).model_fields:
            if name in _KEPT or (isinstance(record, Trajectory) and name in ("final_patch", "redacted", "spawned_by")):
                continue
            old = getattr(record, name)
            new = self._arguments(old) if isinstance(record, ToolCall) and name == "arguments" else self._walk(old)
            if new is not old:
                update[name] = new
        if isinstance(record, Stream | Attachment) and record.blob is not None:
            blob = self._blob(record.blob)
            if blob != record.blob:
                update["blob"] = blob
        if update and isinstance(record, Message):
            update["sampled_ids"] = None
        return record.model_copy(update=update) if update else record

    def _arguments(self, text: str) -> str:
        """The JSON text of a call's arguments. What hides behind its escapes is found in what it says."""
        clean = self._redactor.text(text, self._counts)
        try:
            said = json.loads(clean)
        except (ValueError, RecursionError):
            return clean
        walked = self._walk(said)
        return clean if walked is said else json.dumps(walked, ensure_ascii=False)

    def _blob(self, blob: str, base: str | None = None) -> str:
        """The id, in the target, of a blob without secrets, but for those that it has from ``base``. Bytes that are no
        text stay as they are."""
        known = self._blobs.get((blob, base))
        if known is None:
            counts: Counter[str] = Counter()
            data = self.source.get(blob)
            if b"\0" not in data[:_BINARY_HEAD]:
                spared = self._own_of(base) if base is not None else frozenset[bytes]()
                data = self._redactor.data(data, counts, spared)
            known = self._blobs[blob, base] = (self.target.put(data), counts)
        self._counts.update(known[1])
        return known[0]

    def _own_of(self, blob: str) -> frozenset[bytes]:
        """What the repository's own file holds: it is no secret of the trajectory, and stays in the states before."""
        found = self._own.get(blob)
        if found is None:
            found = self._own[blob] = self._redactor.secrets_in(self.source.get(blob))
        return found

    def _states(self, trajectory: Trajectory) -> dict[str, str]:
        """Every workspace state of a trajectory, with the id that it has without secrets."""
        states = [state for step in trajectory.steps for state in (step.state_before, step.state_after)]
        found = dict.fromkeys(state for state in (*states, trajectory.final_state) if state is not None)
        base = next(iter(found), None)
        if base is None:
            return {}
        self.source.copy_tree(base, self.target)
        return {state: self._tree(base, state) for state in found}

    def _tree(self, base: str, state: str) -> str:
        """A state without the secrets that its files have and those of the base have not."""
        known = self._trees.get((base, state))
        if known is not None:
            return known
        changes: dict[str, Entry | None] = {}
        clean = True
        for path, (old, new) in self.source.changes(base, state).items():
            if new is None:
                changes[path] = None
                continue
            name = path if old is not None else self._redactor.text(path, self._counts)
            entry = Entry(new.mode, self._blob(new.id, old.id if old is not None else None))
            changes[name] = entry
            clean = clean and name == path and entry == new
        tree = self.target.update_tree(base, changes)
        if clean and tree != state:  # what git stores in ways of its own is not made anew
            self.source.copy_tree(state, self.target)
            tree = state
        self._trees[base, state] = tree
        return tree

    def _patch(self, trajectory: Trajectory, trees: dict[str, str]) -> str | None:
        """The final patch, made anew where the states that it lies between are: the ids in it are those of files with
        secrets, from which short ones could be guessed."""
        final, patch = trajectory.final_state, trajectory.final_patch
        base = next(iter(trees), None)
        if not patch or final is None or base is None or trees[final] == final:
            return patch
        if diff_trees(self.source, base, final) != patch:
            return patch
        return diff_trees(self.target, base, trees[final])


def _without_ids(old: Sequence[Step], new: Sequence[Step], *, all_of_them: bool) -> list[Step]:
    """Steps without the token ids that give away what was redacted: those of a step whose prompt or answer changed, and
    those of the steps after it, because it is part of their context, until a compaction begins a context of its own."""
    tainted: dict[int, bool] = {}
    steps = []
    for before, after in zip(old, new, strict=True):
        changed = after.prompt is not before.prompt or after.message is not before.message
        begins = after.compacted and after.tokens is not None and after.tokens.restart
        inherited = after.parent is not None and tainted.get(after.parent, False) and not begins
        tainted[after.index] = all_of_them or changed or inherited
        steps.append(_untokened(after) if tainted[after.index] else after)
    return steps


def _untokened(step: Step) -> Step:
    prompt = tuple(_unsampled(message) for message in step.prompt)
    return step.model_copy(update={"tokens": None, "message": _unsampled(step.message), "prompt": prompt})


def _unsampled(message: Message) -> Message:
    return message if message.sampled_ids is None else message.model_copy(update={"sampled_ids": None})
