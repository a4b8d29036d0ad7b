"""A fitted model is data: it scores as scikit-learn does, by plain Python, and is frozen by its hash."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.errors import ConfigError, DataError
from patchgym.records import Limits
from patchgym.reward.value import FitSettings, Fitted, ValueModel, fit, label_paths, quality, step_features
from patchgym.reward.value.fit import task_folds
from patchgym.reward.value.model import Calibration, DecisionTree, FittedOn, Reference, levelled
from tests.reward.value.made import attempt, step, telling_attempts


def by_hand() -> ValueModel:
    """One stump: more than one step is worth more."""
    from patchgym.reward.value import FEATURES

    turn = list(FEATURES).index("turn")
    stump = DecisionTree(
        feature=(turn, -1, -1),
        threshold=(1.0, None, None),
        missing_left=(True, False, False),
        left=(1, 0, 0),
        right=(2, 0, 0),
        value=(0.0, -2.0, 2.0),
    )
    return ValueModel(
        features=tuple(FEATURES),
        baseline=0.0,
        trees=(stump,),
        calibration=Calibration(kind="sigmoid"),
        reference=Reference(scores=(), outcomes=()),
        fitted_on=FittedOn(runs=(), tasks=(), trajectories=0, steps=0, labels={}, settings={}),
    )


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    pytest.importorskip("sklearn", reason="needs the value extra")
    return fit(label_paths(telling_attempts()), FitSettings(least=5), {})


def test_a_model_by_hand_scores_as_computed_by_hand() -> None:
    first, second = by_hand().values([step(0), step(1)])
    assert first == pytest.approx(0.11920292202211755)
    assert second == pytest.approx(0.8807970779778823)
    assert by_hand().value([step(0), step(1)], Limits()) == second


@pytest.mark.parametrize("kind", ["sigmoid", "isotonic"])
def test_scores_are_exactly_those_of_scikit_learn(kind: str) -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    import numpy
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.isotonic import IsotonicRegression
    from threadpoolctl import threadpool_limits

    from patchgym.reward.value.fit import _bare, calibrated, matrix

    def known(rows: list[Any]) -> Any:
        table = matrix(rows)
        table[:, numpy.isnan(table).all(axis=0)] = 0.0
        return table

    paths = label_paths(telling_attempts(), own_outcome=True)
    rows = [row for path in paths for row in step_features(path.steps)]
    outcomes = [path.outcome for path in paths for _ in path.steps]
    with threadpool_limits(limits=1, user_api="openmp"):  # threads wait for each other on a busy machine
        theirs = HistGradientBoostingClassifier(max_iter=30, min_samples_leaf=3, random_state=0)
        theirs.fit(known(rows), outcomes)
    ours = _bare(theirs, paths, (), FitSettings())
    dice = random.Random(0)
    odd = [tuple(None if dice.random() < 0.3 else dice.uniform(-5, 50) for _ in rows[0]) for _ in range(300)]
    with threadpool_limits(limits=1, user_api="openmp"):
        raw = theirs.decision_function(matrix([*rows, *odd])).tolist()
    assert [ours.raw(row) for row in [*rows, *odd]] == raw
    found = calibrated(list(zip(raw, outcomes, strict=False)), kind)  # type: ignore[arg-type]
    if kind == "isotonic":
        line = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(raw[: len(outcomes)], outcomes)
        expected = line.predict(numpy.array(raw)).tolist()
        assert [found.probability(score) for score in raw] == pytest.approx(expected, abs=1e-12)
    assert all(0 <= found.probability(score) <= 1 for score in raw)


def test_attempts_that_tell_their_outcome_are_ranked_by_it(fitted: Fitted) -> None:
    found = quality(fitted.held_out)
    assert found.ends.auc.low is not None
    assert found.ends.auc.low > 0.7
    assert found.ends.brier.value is not None
    assert found.ends.brier.value < found.ends.brier_constant


def test_attempts_that_tell_nothing_are_not_ranked() -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    found = quality(fit(label_paths(telling_attempts(clear=0.5)), FitSettings(least=5), {}).held_out)
    assert found.ends.auc.value is not None
    assert 0.25 < found.ends.auc.value < 0.75


def test_the_same_attempts_give_the_same_model(fitted: Fitted) -> None:
    assert fit(label_paths(telling_attempts()), FitSettings(least=5), {}).model.hash == fitted.model.hash


def test_a_saved_model_is_the_same_and_scores_the_same(fitted: Fitted, tmp_path: Path) -> None:
    fitted.model.save(tmp_path / "value.json")
    again = ValueModel.load(tmp_path / "value.json")
    steps = telling_attempts()[0].steps
    assert again == fitted.model
    assert again.hash == fitted.model.hash
    assert again.values(steps) == fitted.model.values(steps)


def test_scoring_loads_nothing_heavy(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "value.json")
    code = (
        "import sys; from pathlib import Path; from patchgym.reward.value.opened import load_value\n"
        "load_value(Path(sys.argv[1])).values(())\n"
        "print([name for name in ('numpy', 'sklearn', 'torch', 'pickle5', 'joblib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "value.json")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_model_with_another_hash_is_refused_and_both_are_told(tmp_path: Path) -> None:
    model = by_hand()
    model.model_copy(update={"baseline": 0.1}).save(tmp_path / "value.json")
    with pytest.raises(DataError) as error:
        ValueModel.load(tmp_path / "value.json", model.hash)
    assert model.hash in error.value.why
    assert ValueModel.load(tmp_path / "value.json").hash in error.value.why


def change(data: dict[str, Any], *place: Any, value: Any) -> None:
    for part in place[:-1]:
        data = data[part]
    data[place[-1]] = value


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("trees", 0, "left"), [0, 0, 0]),  # a circle
        (("trees", 0, "right"), [9, 0, 0]),
        (("trees", 0, "feature"), [999, -1, -1]),
        (("trees", 0, "value"), [0.0]),
        (("calibration",), {"kind": "isotonic", "x": [1.0, 0.0], "y": [0.0, 1.0]}),
        (("features",), ["other"] * 40),
        (("schema_version",), 99),
    ],
)
def test_a_damaged_model_is_refused(tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    data = json.loads(by_hand().to_line())
    change(data, *place, value=value)
    (tmp_path / "value.json").write_text(json.dumps(data))
    with pytest.raises(DataError):
        ValueModel.load(tmp_path / "value.json")


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x80\x04K.", "null"])
def test_what_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "value.json").write_text(text)
    with pytest.raises(DataError):
        ValueModel.load(tmp_path / "value.json")


def test_one_task_is_too_few_to_fit_on() -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    with pytest.raises(DataError, match="1 tasks"):
        fit(label_paths(telling_attempts(tasks=1)), FitSettings(), {})


def test_attempts_of_one_outcome_cannot_be_fitted_on() -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    same = [attempt(0, [step(0)], solved=True, task=f"t{at}") for at in range(5)]
    with pytest.raises(DataError, match="all came to the same"):
        fit(label_paths(same), FitSettings(), {})


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    from patchgym.config import assigned

    with pytest.raises(ConfigError, match="itrations") as error:
        assigned(FitSettings, ["itrations=3"], "--set")
    assert "iterations" in error.value.mend


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(2, 6), st.integers(0, 9))
def test_a_task_never_stands_in_two_folds(tasks: list[str], folds: int, seed: int) -> None:
    found = task_folds(tasks, folds, seed)
    assert all(len({found[at] for at, task in enumerate(tasks) if task == name}) == 1 for name in set(tasks))
    assert len(set(found)) == min(folds, len(set(tasks)))


@given(st.floats(0, 1), st.integers(2, 20))
def test_levels_are_so_many_and_the_nearest(score: float, levels: int) -> None:
    cut = levelled(score, levels)
    assert abs(cut - score) <= 0.5 / (levels - 1) + 1e-9
    assert cut * (levels - 1) == pytest.approx(round(cut * (levels - 1)))


def test_levels_are_part_of_the_model() -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    found = fit(label_paths(telling_attempts()), FitSettings(least=5, levels=5), {})
    assert {score for one in found.held_out for score in one.scores} <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert set(found.model.values(telling_attempts()[0].steps)) <= {0.0, 0.25, 0.5, 0.75, 1.0}


def test_figures_are_not_of_scores_calibrated_on_themselves() -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    found = fit(label_paths(telling_attempts(clear=0.5)), FitSettings(least=5, calibration="isotonic"), {})
    ece = quality(found.held_out).steps.ece.value
    assert ece is not None
    assert ece > 0.01  # on itself an isotonic calibration has none at all
