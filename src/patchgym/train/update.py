"""The two updates, from trajectories to a published checkpoint. torch loads when one of them is called."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.errors import PrerequisiteError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Trajectory, Tree
from patchgym.train.report import (
    OnReport,
    OnStep,
    PolicyGradientSettings,
    SftSettings,
    TrainSettings,
    UpdateReport,
)
from patchgym.train.rows import RowSet, imitation_rows

if TYPE_CHECKING:
    from patchgym.train.model import AdaptedModel
    from patchgym.train.state import UpdateState


def sft(
    trajectories: Iterable[Trajectory],
    *,
    start: str,
    out: Path,
    settings: SftSettings,
    trained_on: Mapping[str, Sequence[str]],
    cache: Path | None = None,
    on_step: OnStep | None = None,
    on_report: OnReport | None = None,
    state: Path | None = None,
) -> UpdateReport:
    """Teach a policy to act as in ``trajectories``, all of which the caller found worth imitating.

    ``start`` names a base model (a new adapter) or a checkpoint (its adapter goes on). The new checkpoint is the
    directory ``out / report.version``; there is none where ``report.version`` is None. ``trained_on`` says which tasks
    the trajectories are of, so that the checkpoint can be kept from evaluations that overlap them
    (``patchgym.tasks.overlap.refuse.overlap_keys``).

    With ``state``, a folder of this one update, every step is kept there: an update that was killed goes on from its
    last one, and one that is done can be made again (``replay``). Without it a killed update begins again.

    Raises:
        PrerequisiteError: the train extra is not installed.
        UsageError, DataError, ConfigError: ``start`` is no model, is damaged, or cannot be trained; ``state`` holds an
            update of other rows, settings, base or code.
        DivergenceError: a loss or a gradient is not finite.
        StorageError: a state or the checkpoint could not be written; earlier ones stay.
    """
    with _train_extra():
        from patchgym.train.loading import load_adapted
        from patchgym.train.objectives import Imitation
        from patchgym.train.trainer import train
    model = load_adapted(start, settings, cache)
    rows = imitation_rows(trajectories, ChatEncoder(model.tokenizer), max_length=settings.max_row_tokens)
    with _kept(state, rows, model, "sft", settings, start) as kept:
        return train(
            rows,
            model,
            Imitation(),
            settings,
            out=out,
            trained_on=trained_on,
            on_step=on_step,
            on_report=on_report,
            state=kept,
        )


def grpo(
    trajectories: Iterable[Trajectory],
    *,
    start: str,
    out: Path,
    settings: PolicyGradientSettings,
    trained_on: Mapping[str, Sequence[str]],
    trees: Iterable[Tree] = (),
    key_files: Mapping[str, Collection[str]] | None = None,
    cache: Path | None = None,
    on_step: OnStep | None = None,
    on_report: OnReport | None = None,
    state: Path | None = None,
) -> UpdateReport:
    """Make a policy likelier to do what was rewarded above its baseline, and less likely to do the rest, by any of the
    algorithms of ``settings.algorithm``.

    ``trajectories`` are graded and carry the ids and log-probabilities of their sampling. ``trees`` and ``key_files``
    are as for ``groups.policy_gradient_rows``. ``start``, ``out``, ``trained_on`` and ``state`` are as for ``sft``, and
    so are the errors; a ConfigError also where the baseline is ``value`` and the model has no value head. Where nothing
    can be learned (no group with variance, say) nothing is published and the report says why.
    """
    with _train_extra():
        from patchgym.train.groups import policy_gradient_rows
        from patchgym.train.loading import load_adapted
        from patchgym.train.objectives import PolicyGradient
        from patchgym.train.trainer import train
    model = load_adapted(start, settings, cache)
    rows = policy_gradient_rows(
        trajectories,
        settings,
        updates=model.step,
        trees=trees,
        key_files=key_files,
        encoder=ChatEncoder(model.tokenizer) if settings.check_prompts else None,
    )
    with _kept(state, rows, model, settings.algorithm, settings, start) as kept:
        return train(
            rows,
            model,
            PolicyGradient(settings),
            settings,
            out=out,
            trained_on=trained_on,
            on_step=on_step,
            on_report=on_report,
            state=kept,
        )


@contextmanager
def _kept(
    path: Path | None, rows: RowSet, model: "AdaptedModel", algorithm: str, settings: TrainSettings, start: str
) -> "Iterator[UpdateState | None]":
    """The state of an update that is kept at ``path``, if it is to be. One of several processes keeps none: where it is
    ended, it begins again."""
    from patchgym.train.parallel import ranks_here

    if path is None or ranks_here().size > 1:
        yield None
        return
    from patchgym.train.state import UpdateState, identity_of

    state = UpdateState.open(path, identity_of(rows, model, algorithm, settings, start), rows, settings)
    try:
        yield state
    finally:
        state.close()


@contextmanager
def _train_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise PrerequisiteError(
            "Training needs the train extra",
            why=f"{error.name or 'A part of it'} cannot be imported: {error}.",
            mend="Run: pip install 'patchgym[train]'",
        ) from error
