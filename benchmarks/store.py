"""What a run costs on disk beside what is in it.

Prints one JSON document: the bytes of a run's distinct content (every different message, answer, argument, stream and
patch once, and every different file of its workspaces once, as long as they are), the bytes that its folder takes, and
their ratio. Claim: at most 3.

    python benchmarks/store.py RUN...
"""

import argparse
import json
from pathlib import Path

from patchgym.records import Trajectory
from patchgym.store import RunDirectory


def texts_of(trajectory: Trajectory) -> set[bytes]:
    """Every different text of a trajectory."""
    found: set[str] = {trajectory.final_patch or ""}
    if trajectory.report is not None:
        found |= {trajectory.report.log, trajectory.report.why, *trajectory.report.tests}
    for step in trajectory.steps:
        found |= {message.content for message in (*step.prompt, step.message)}
        if step.action is not None:
            found |= {str(value) for value in step.action.arguments.values()}
        if step.observation is not None:
            seen = step.observation
            found |= {seen.shown, *(stream.text for stream in (seen.stdout, seen.stderr) if stream is not None)}
        if step.tokens is not None:
            found.add(json.dumps([step.tokens.prompt_ids, step.tokens.sampled_ids, step.tokens.logprobs]))
    return {text.encode("utf-8", "surrogatepass") for text in found}


def blobs_of(run: RunDirectory, trajectory: Trajectory) -> set[str]:
    """Every different file of its states, and every stream kept whole."""
    states = {step.state_before for step in trajectory.steps} | {trajectory.final_state}
    blobs = {entry.id for state in states if state is not None for entry in run.objects.entries(state).values()}
    for step in trajectory.steps:
        if step.observation is not None:
            streams = (step.observation.stdout, step.observation.stderr)
            blobs |= {stream.blob for stream in streams if stream is not None and stream.blob is not None}
    return blobs


def main() -> None:
    """Parse the command line, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    found = []
    for path in parser.parse_args().runs:
        run = RunDirectory.read(path)
        texts: set[bytes] = set()
        blobs: set[str] = set()
        for trajectory in run.trajectories:
            texts |= texts_of(trajectory)
            blobs |= blobs_of(run, trajectory)
        content = sum(map(len, texts)) + sum(len(run.objects.get(blob)) for blob in blobs)
        files = [file for file in path.rglob("*") if file.is_file()]
        disk = sum(file.stat().st_size for file in files)
        lines = (path / "trajectories.jsonl").stat().st_size
        found.append(
            {
                "run": path.name,
                "trajectories": len(run.ids),
                "content_bytes": content,
                "disk_bytes": disk,
                "of_that_lines": lines,
                "ratio": round(disk / content, 2),
            }
        )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
