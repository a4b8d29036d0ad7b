"""A head on a language model's hidden states: small random models show that it is read, fitted, saved and refused."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("transformers", reason="needs the train extra")
pytest.importorskip("sklearn", reason="needs the value extra")

from patchgym.errors import DataError  # noqa: E402
from patchgym.policy.models import load_model  # noqa: E402
from patchgym.records import Limits, Step  # noqa: E402
from patchgym.reward.value import FitSettings, Scored, label_paths, quality  # noqa: E402
from patchgym.reward.value.head import ValueHead, fit_head, hidden_states, step_texts  # noqa: E402
from patchgym.reward.value.opened import opened_value  # noqa: E402
from tests.reward.value.made import step, telling_attempts  # noqa: E402
from tests.train.tiny import save_tiny_model  # noqa: E402

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def fitted(model_dir: Path) -> tuple[ValueHead, list[Scored]]:
    attempts = telling_attempts()
    told = [
        one.model_copy(
            update={"steps": tuple(_said(each, bool(one.reward and one.reward.value)) for each in one.steps)}
        )
        for one in attempts
    ]
    return fit_head(label_paths(told, own_outcome=True), str(model_dir), FitSettings())


def _said(one: Step, solved: bool) -> Step:
    message = one.message.model_copy(update={"content": "good" if solved else "bad"})
    return one.model_copy(update={"message": message})


def test_what_the_text_tells_is_learned(fitted: tuple[ValueHead, list[Scored]]) -> None:
    found = quality(fitted[1])
    assert found.ends.auc.low is not None
    assert found.ends.auc.low > 0.8


def test_a_saved_head_scores_the_same_and_holds_no_pickle(
    fitted: tuple[ValueHead, list[Scored]], tmp_path: Path
) -> None:
    head = fitted[0]
    head.save(tmp_path / "head")
    again = ValueHead.load(tmp_path / "head", head.hash)
    steps = telling_attempts()[0].steps
    assert again.values(steps) == head.values(steps)
    assert sorted(path.name for path in (tmp_path / "head").iterdir()) == ["head.json", "head.safetensors"]


def test_weights_that_changed_are_refused(fitted: tuple[ValueHead, list[Scored]], tmp_path: Path) -> None:
    fitted[0].save(tmp_path / "head")
    weights = tmp_path / "head" / "head.safetensors"
    packed = bytearray(weights.read_bytes())
    packed[-1] ^= 1
    weights.write_bytes(bytes(packed))
    with pytest.raises(DataError) as error:
        ValueHead.load(tmp_path / "head")
    assert fitted[0].card.weights_sha256 in error.value.why


def test_another_language_model_underneath_is_refused(fitted: tuple[ValueHead, list[Scored]], tmp_path: Path) -> None:
    card = fitted[0].card.model_copy(update={"base_version": "another"})
    ValueHead(card, fitted[0]._weights, fitted[0]._body).save(tmp_path / "head")
    with pytest.raises(DataError, match="is not the value model"):
        ValueHead.load(tmp_path / "head")


def test_a_head_is_a_value_function(fitted: tuple[ValueHead, list[Scored]], tmp_path: Path) -> None:
    fitted[0].save(tmp_path / "head")
    value, found = opened_value(f"model:{tmp_path / 'head'}", fitted[0].hash)
    assert found == fitted[0].hash
    assert 0 <= value([step(0)], Limits()) <= 1


def test_a_step_is_read_with_what_came_before_and_nothing_after(model_dir: Path) -> None:
    body = load_model(str(model_dir))
    steps = [step(at, shown=str(at)) for at in range(3)]
    whole, part = hidden_states(body, steps), hidden_states(body, steps[:2])
    assert torch.allclose(whole[:2], part, atol=1e-5)
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)


def test_an_attempt_longer_than_the_context_has_a_state_for_each_step(model_dir: Path) -> None:
    body = load_model(str(model_dir))
    steps = [step(at, shown="x" * (900 if at == 3 else 60)) for at in range(12)]
    assert hidden_states(body, steps).shape == (12, 32)


def test_long_texts_are_cut_to_their_ends() -> None:
    (text,) = step_texts([step(0, shown="a" * 5000 + "b")])
    assert len(text) < 2200
    assert text.endswith("b\n")
