"""The funnel never loses a candidate."""

from hypothesis import given
from hypothesis import strategies as st

from patchgym.tasks.funnel import REASONS, Dropped, Funnel, Stage, meaning_of
from patchgym.tasks.sources.refusals import Refusal

DROPS = st.lists(st.sampled_from(sorted(REASONS)))


@given(DROPS, st.integers(0, 50))
def test_stages_only_ever_narrow_and_end_in_what_is_written(drops: list[str], written: int) -> None:
    funnel = Funnel()
    for reason in drops:
        funnel.drop(reason)
    for _ in range(written):
        funnel.write()
    counts = list(funnel.stages.values())
    assert list(funnel.stages) == [stage.value for stage in Stage]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == written
    assert counts[0] == written + sum(funnel.dropped.values())


@given(DROPS)
def test_reasons_stand_in_the_order_of_their_stages(drops: list[str]) -> None:
    funnel = Funnel()
    for reason in drops:
        funnel.drop(reason)
    stages = [list(Stage).index(REASONS[reason][0]) for reason in funnel.dropped]
    assert stages == sorted(stages)


def test_a_failure_to_build_counts_at_its_stage_under_its_kind() -> None:
    funnel = Funnel()
    funnel.drop("resolver", Stage.ENVIRONMENT_BUILT, count=3)
    funnel.write()
    assert (funnel.stages["candidates"], funnel.stages["environment_built"], funnel.dropped) == (4, 1, {"resolver": 3})
    assert Dropped("resolver", Stage.ENVIRONMENT_BUILT).stage is Stage.ENVIRONMENT_BUILT
    assert Dropped("survived").stage is Stage.FAILS_BEFORE


def test_every_reason_has_a_meaning_of_its_own() -> None:
    reasons = [*REASONS, *Refusal]
    assert len({meaning_of(reason) for reason in reasons}) == len(reasons)
    assert meaning_of("no_parent") == "no candidate: nothing came before it"
