"""Every ``bash`` block of every page runs, in order, one page a folder. ``console`` blocks show what was seen.

``make demo`` and ``make test`` would run this suite inside itself: here make is only asked what it would do.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workshop import need_namespaces

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.train
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    need_namespaces()
    pytest.importorskip("torch", reason="LOUD SKIP: the pages need the train extra")
    assert blocks(page)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in blocks(page):
        script = re.sub(r"^make (\w+)", rf"make -n -C {ROOT} \1", block, flags=re.MULTILINE)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_the_readmes_say_the_same_commands() -> None:
    english, chinese = (blocks(ROOT / name) for name in ("README.md", "README.zh-CN.md"))
    assert english == chinese


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
