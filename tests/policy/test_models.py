"""Models on disk: names, directories, checkpoints, versions, and what happens where they are not as they should be."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from patchgym.errors import DataError, UsageError
from patchgym.policy.models import (
    content_hash,
    known_models,
    load_base,
    load_model,
    read_checkpoint,
    resolve_model,
)
from tests.policy.tiny import CONTEXT, save_tiny_checkpoint, save_tiny_model, tiny_network

pytestmark = pytest.mark.train


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "base")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=torch.arange(1, 20)[None]).logits
    return found


def test_importing_the_policies_loads_no_heavy_library() -> None:
    done = python(
        "import sys, patchgym.policy, patchgym.policy.models, patchgym.policy.local, patchgym.policy.openai\n"
        "print(sorted({'torch', 'transformers', 'peft', 'tokenizers', 'httpx2', 'numpy'} & set(sys.modules)))"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_the_train_extra_the_error_names_the_command(base: Path, cache: Path) -> None:
    done = python(
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from pathlib import Path; from patchgym.errors import PrerequisiteError\n"
        "from patchgym.policy.models import load_model\n"
        f"for name in ('smollm2', {str(base)!r}):\n"
        "    try: load_model(name, cache=Path('/nonexistent'))\n"
        "    except PrerequisiteError as error: print(error.exit_code, error.mend)\n"
    )
    assert done.stdout.splitlines() == ["3 Run: pip install 'patchgym[train]'"] * 2, done.stderr


@pytest.mark.parametrize("what", ["absent", "empty", "file"])
def test_what_is_no_model_is_refused(what: str, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        resolve_model(str(tmp_path / what), cache)
    assert "smollm2" in caught.value.why
    assert caught.value.mend
    assert not cache.exists()


def test_a_model_is_loaded_in_silence_and_off_line(base: Path, cache: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "def refuse(event, args):\n    if event in ('socket.connect', 'socket.getaddrinfo'): raise SystemExit(event)\n"
        "sys.addaudithook(refuse)\nfrom patchgym.policy.models import load_model\n"
        f"load_model({str(base)!r}, cache=Path({str(cache)!r}))"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_loaded_model_is_frozen_and_knows_what_it_is(base: Path, cache: Path) -> None:
    loaded = load_model(str(base), cache=cache)
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.base == str(base)
    assert loaded.directory == base
    assert loaded.max_context == CONTEXT
    assert loaded.version == f"base@{content_hash(base, cache)[:12]}"
    assert next(load_model(str(base), dtype="bfloat16", cache=cache).model.parameters()).dtype == torch.bfloat16


def test_a_version_follows_the_weights_and_nothing_else(base: Path, tmp_path: Path, cache: Path) -> None:
    first = content_hash(base, cache)
    (kept,) = (cache / "models" / "hashes").iterdir()
    kept.write_text("from the cache")
    assert content_hash(base, cache) == "from the cache"
    copy = save_tiny_model(tmp_path / "copy")
    config = copy / "config.json"
    config.write_text(config.read_text().replace('"transformers_version": "', '"transformers_version": "later than '))
    assert content_hash(copy, cache) == first
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert content_hash(copy, cache) != first
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert content_hash(copy, cache) != first


def test_a_checkpoint_is_its_base_with_the_adapter_on(base: Path, tmp_path: Path, cache: Path) -> None:
    path = save_tiny_checkpoint(tmp_path / "checkpoint", base)
    assert resolve_model(str(path), cache) == path
    info = read_checkpoint(path)
    assert (info.version, info.base, info.step, info.metrics["kl"]) == ("grpo-1-abc", str(base), 1, None)
    merged, beside = (load_model(str(path), merge_adapter=merge, cache=cache) for merge in (True, False))
    assert merged.version == beside.version == "grpo-1-abc"
    assert merged.base == beside.base == str(base)
    plain = load_base(str(path), cache=cache)
    assert plain.version.startswith("base@")
    assert torch.allclose(logits(merged.model), logits(beside.model), atol=1e-4)
    assert torch.equal(logits(plain.model), logits(load_model(str(base), cache=cache).model))
    assert not torch.allclose(logits(merged.model), logits(plain.model), atol=0.1)
    assert not any("lora" in name for name, _ in merged.model.named_parameters())
    assert any("lora" in name for name, _ in beside.model.named_parameters())
    assert not any(parameter.requires_grad for parameter in beside.model.parameters())


@pytest.mark.parametrize(
    "damage",
    ["config.json", "model.safetensors", "tokenizer.json", "no weights", "cut weights", "no adapter", "cut adapter"],
)
def test_a_damaged_directory_is_named(damage: str, base: Path, tmp_path: Path, cache: Path) -> None:
    path = save_tiny_checkpoint(tmp_path / "checkpoint", base)
    weights, adapter = base / "model.safetensors", path / "adapter" / "adapter_model.safetensors"
    match damage:
        case "no weights":
            weights.unlink()
        case "cut weights":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "no adapter":
            adapter.unlink()
        case "cut adapter":
            adapter.write_bytes(adapter.read_bytes()[:-100])
        case name:
            (base / name).write_text("{")
    with pytest.raises(DataError) as caught:
        load_model(str(path), cache=cache)
    assert str(path if "adapter" in damage else base) in caught.value.what
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 1}, {"num_hidden_layers": 3}, {"intermediate_size": 32}])
def test_a_checkpoint_of_another_model_is_refused(
    changes: dict[str, Any], base: Path, tmp_path: Path, cache: Path
) -> None:
    path = save_tiny_checkpoint(tmp_path / "checkpoint", base)
    tiny_network(**changes).save_pretrained(base)
    with pytest.raises(DataError, match="checkpoint"):
        load_model(str(path), cache=cache)


def test_checkpoint_files_are_read_strictly(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_checkpoint(tmp_path)
    (tmp_path / "checkpoint.json").write_text('{"schema_version": 1, "version": "v"}')
    with pytest.raises(DataError, match=r"checkpoint\.json"):
        read_checkpoint(tmp_path)


def test_every_known_model_has_a_full_pin() -> None:
    for entry in known_models().values():
        assert len(entry.pin.sha256) == 64
        assert entry.gguf.endswith(".gguf")
