"""What a task set is made of: the ``[tasks]`` section of a recipe."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from patchgym.config import Settings
from patchgym.records import Limits
from patchgym.tasks.gates.settings import GateSettings

PlaceName = Annotated[str, StringConstraints(pattern=r"^[^=/]+==[^=/]+$|/|^\.+$")]
PairName = Annotated[str, StringConstraints(pattern=r"^[^=]+==[^=]+\.\.[^=]+$")]


class BugSettings(Settings):
    """Which bugs are planted. ``operators`` (none: all) are those of ``patchgym.tasks.bugs.operators``; ``removals``
    and ``combined`` are the shares of bugs that take a function's body out and of two or three bugs at once;
    ``per_function`` bounds the tasks made of one function; ``tries_per_task`` the candidates run for each task wanted.
    """

    operators: tuple[str, ...] = ()
    max_function_lines: int = Field(default=80, ge=0)
    per_function: int = Field(default=1, ge=1)
    removals: float = Field(default=0.0, ge=0.0, le=0.5)
    combined: float = Field(default=0.0, ge=0.0, le=0.5)
    tries_per_task: int = Field(default=6, ge=1)


class WriterSettings(Settings):
    """A model that writes for a build (none: ``model`` is empty): what an OpenAI-compatible endpoint at ``base_url``
    (none: ``$OPENAI_BASE_URL``) calls it. ``bugs`` is how many it is asked for in each release, ``statements`` whether
    it tells what goes wrong where nobody wrote that."""

    model: str = ""
    base_url: str = ""
    bugs: int = Field(default=0, ge=0)
    statements: bool = True
    temperature: float = Field(default=0.7, ge=0.0)
    max_tokens: int = Field(default=1500, ge=1)


class TaskSetRecipe(Settings):
    """Settings of ``patchgym tasks build``.

    ``train`` and ``heldout`` name releases (``name==version``) and git repositories (a path with a ``/``, or a URL; the
    newest commit) in which bugs are planted; a package may be on both sides with different releases, and then
    ``heldout_functions`` is the share of its functions that only held-out tasks touch. ``pairs`` (``name==old..new``)
    are fixes that a release made, ``repositories`` git paths or URLs whose commits are mined, ``histories`` packages
    (``name``, ``name==version`` or ``name==old..new``) whose successive releases are, ``logs`` files of agent sessions
    (``patchgym.tasks.sources.sessions``) whose repositories are cloned in the folder ``clones``; what comes of all four
    is for training. ``commits`` bounds the candidates of each history. ``issues`` maps a repository, as it is named
    here, to a JSONL file of its issues (``number``, ``title``, ``body``), for statements.

    ``gates`` are what tasks are held against once they are proved.
    ``benchmarks`` are files (indexes, rows, task sets) whose tasks must not be in the set.
    ``wording`` is how instructions are worded where nobody wrote one (``patchgym.tasks.proof.statement``).
    ``max_failing_tests`` bounds the tests that a planted bug may fail; ``test_seconds`` every run of the tests;
    ``proof_runs`` is how often each kind of run is repeated; ``mutants`` how many bugs are planted in each solution to
    measure its tests (0: none); ``probes`` whether calls to each solution are recorded for grading. ``concurrency`` 0
    means one sandbox a core.
    """

    name: str = "default"
    seed: int = 0
    train: tuple[PlaceName, ...] = ()
    heldout: tuple[PlaceName, ...] = ()
    pairs: tuple[PairName, ...] = ()
    repositories: tuple[str, ...] = ()
    issues: dict[str, str] = Field(default_factory=dict)
    histories: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    clones: str = ""
    benchmarks: tuple[str, ...] = ()
    commits: int = Field(default=50, ge=1)
    train_per_release: int = Field(default=4, ge=0)
    heldout_per_release: int = Field(default=3, ge=0)
    heldout_functions: float = Field(default=0.4, gt=0.0, lt=1.0)
    bugs: BugSettings = BugSettings()
    writer: WriterSettings = WriterSettings()
    gates: GateSettings = GateSettings()
    wording: Literal["tests", "symptoms"] = "tests"
    max_failing_tests: int = Field(default=40, ge=2)
    test_seconds: float = Field(default=30.0, gt=0.0)
    proof_runs: int = Field(default=3, ge=1)
    mutants: int = Field(default=0, ge=0)
    probes: bool = False
    concurrency: int = Field(default=0, ge=0)
    limits: Limits = Limits(turns=8, tokens=1200, seconds=300.0, command_seconds=30.0, output_bytes=1600)
