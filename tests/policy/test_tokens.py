"""What is known here of a server's model: found without the network, named as the local policy names it."""

import json
from pathlib import Path

import pytest

from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.policy.models import load_model
from patchgym.policy.tokens import load_tokens
from tests.policy.tiny import END, VOCABULARY, save_tiny_checkpoint, save_tiny_model, tiny_tokenizer

pytestmark = pytest.mark.train


def test_a_model_is_called_what_the_local_policy_calls_it(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    tokens = load_tokens(str(folder), cache=tmp_path / "cache")
    assert tokens.version == load_model(str(folder), cache=tmp_path / "cache").version
    assert (tokens.vocabulary, tokens.stop_ids, tokens.checkpoint) == (VOCABULARY, frozenset({END}), None)


def test_a_checkpoint_has_the_tokens_of_its_base(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint", folder)
    tokens, base = (load_tokens(str(path), cache=tmp_path / "cache") for path in (checkpoint, folder))
    assert (tokens.version, tokens.weights, tokens.checkpoint) == (base.version, base.weights, checkpoint)


def test_ids_that_end_an_answer_by_the_models_own_settings_do_so_here(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, 7]}))
    assert load_tokens(str(folder), cache=tmp_path / "cache").stop_ids == {END, 7}


def test_a_tokenizer_may_lie_elsewhere_and_a_model_without_weights_has_no_version(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    tokens = load_tokens("Qwen/Served", str(tmp_path / "tokenizer"), tmp_path / "cache")
    assert (tokens.version, tokens.weights, tokens.vocabulary) == (None, None, VOCABULARY)


@pytest.mark.parametrize("name", ["Nobody/has-this", "no such directory", "a/b/c"])
def test_what_is_not_on_this_machine_is_not_fetched(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tokenizer DIR"):
        load_tokens(name, cache=tmp_path)


def test_damaged_files_are_data_errors(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(DataError, match="no JSON"):
        load_tokens(str(folder), cache=tmp_path / "cache")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="tokenizer"):
        load_tokens(str(folder), cache=tmp_path / "cache")


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    tiny_tokenizer(None).save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match="chat template"):
        load_tokens("Qwen/Served", str(tmp_path / "tokenizer"), tmp_path)
