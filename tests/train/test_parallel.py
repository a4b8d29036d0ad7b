"""An update by two processes is the update by one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from patchgym.errors import ConfigError
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, TokenRow, grpo
from patchgym.train.parallel import Ranks, ranks_here, shares
from patchgym.train.trie import build_trie
from tests.train.tiny import published, rewarded

pytestmark = pytest.mark.train
SCRIPT = """
import sys
from pathlib import Path
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, grpo

folder, start = Path(sys.argv[1]), sys.argv[2]
trajectories = [Trajectory.from_line(line, where="test") for line in (folder / "rows.jsonl").read_bytes().splitlines()]
settings = PolicyGradientSettings.model_validate_json((folder / "settings.json").read_text())
report = grpo(trajectories, start=start, out=folder / "out", settings=settings, cache=folder / "cache", trained_on={})
(folder / f"{report.version}.{__import__('os').environ['RANK']}").write_text(report.to_line())
"""


def groups(pair: list[Trajectory], names: str = "abc") -> list[Trajectory]:
    return [rewarded(one, group_id=name, id=f"{name}.{at}") for name in names for at, one in enumerate(pair)]


def by_two(folder: Path, start: Path, trajectories: list[Trajectory], settings: PolicyGradientSettings) -> list[Path]:
    """Run the update in two real processes; what each reported, as a file."""
    (folder / "script.py").write_text(SCRIPT)
    (folder / "rows.jsonl").write_text("".join(one.to_line() + "\n" for one in trajectories))
    (folder / "settings.json").write_text(settings.model_dump_json(exclude_unset=True))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(folder / "script.py")]
    done = subprocess.run([sys.executable, *launch, str(folder), str(start)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return sorted(folder.glob("dr_grpo-*")) + sorted(folder.glob("gspo-*"))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"adapter": "none"}, {"algorithm": "gspo", "micro_batch_tokens": 5}])
def test_two_processes_publish_what_one_publishes(
    changes: dict[str, object], pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    told = {"learning_rate": 1e-3, "lora_rank": 4, "max_row_tokens": 64, "passes": 2, "rows_per_step": 6, **changes}
    settings = PolicyGradientSettings.model_validate(told)
    alone = grpo(
        groups(pair), start=str(model_dir), out=tmp_path / "alone", settings=settings, cache=cache, trained_on={}
    )
    reports = [json.loads(file.read_text()) for file in by_two(tmp_path, model_dir, groups(pair), settings)]
    assert len(reports) == 2
    assert reports[0]["version"] == reports[1]["version"]
    wanted = alone.model_dump()
    for report in reports:
        for ours, theirs in zip(report["steps"], wanted["steps"], strict=True):
            for name in ("loss", "gradient_norm", "mean_logprob", "trained_tokens", "rows"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name
            assert ours["read_tokens"] == 2 * theirs["read_tokens"]  # these groups begin alike, and each reads its own
    part = "adapter/adapter_model.safetensors" if settings.adapter == "lora" else "model/model.safetensors"
    ours_weights = load_file(tmp_path / "out" / reports[0]["version"] / part)
    for name, weight in load_file(published(tmp_path / "alone", alone) / part).items():
        apart = (ours_weights[name] - weight).abs()
        # AdamW divides by the gradient's own size: where that is rounding, so is the step.
        assert apart.median() <= 1e-6


def test_groups_stay_whole_and_are_dealt_by_what_there_is_to_read() -> None:
    def row(group: str, at: int, length: int) -> TokenRow:
        ids = (*range(length), 100 + at)
        return TokenRow(ids, (0,) * length + (1,), (0.0,) * (length + 1), (0,) * (length + 1), f"{group}.{at}", group)

    rows = [row(name, at, length) for name, length in (("a", 50), ("b", 20), ("c", 20), ("d", 12)) for at in range(2)]
    dealt = shares(rows, 2)
    assert [sorted({one.group_id for one in some}) for some in dealt] == [["a"], ["b", "c", "d"]]
    assert sum(map(len, dealt)) == len(rows)
    assert max(build_trie([one.ids[:-1] for one in some]).size for some in dealt) <= 52
    assert shares(rows[:2], 3)[1:] == [[], []]


def test_alone_there_is_nothing_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert ranks_here() == Ranks(0, 1)


def test_a_launcher_that_says_too_little_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="RANK, MASTER_ADDR, MASTER_PORT"):
        ranks_here()
