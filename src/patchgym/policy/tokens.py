"""What is known here of a model that a server samples from: its tokenizer, its vocabulary, and which weights it has.

The weights themselves are not loaded; the server has them.
"""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchgym.errors import DataError, PrerequisiteError, UsageError
from patchgym.policy.chat import ChatEncoder, Tokenizer
from patchgym.policy.models import content_hash, known_models, quiet, read_checkpoint, resolve_model

_CHECKPOINT = "checkpoint.json"


@dataclass(frozen=True)
class ModelTokens:
    """A model's own way of reading and writing.

    ``vocabulary`` is the number of its ids, ``stop_ids`` are those that end an answer. ``weights`` is the SHA-256 (hex)
    of its weights and ``version`` what a model loaded from them is called; None where the weights are not on this
    machine. ``checkpoint`` is the checkpoint that was named, None where it was the model itself. ``cache`` is where
    hashes are kept, if not in patchgym's own cache.
    """

    tokenizer: Tokenizer
    encoder: ChatEncoder
    vocabulary: int
    stop_ids: frozenset[int]
    weights: str | None
    version: str | None
    checkpoint: Path | None = None
    cache: Path | None = None

    def weights_of(self, model: str) -> str | None:
        """The SHA-256 (hex) of the weights of another known name or model directory; None where they are not on this
        machine.

        Raises:
            PrerequisiteError, StorageError: as ``patchgym.policy.models.resolve_model``.
        """
        return _weights(_directory(model, self.cache), self.cache)


def load_tokens(model: str, tokenizer: str | None = None, cache: Path | None = None) -> ModelTokens:
    """What is known of ``model``: a known name, a model directory, a checkpoint, or a name on the Hugging Face hub.

    ``tokenizer`` is where its tokenizer is, where that is elsewhere. Nothing is fetched from the hub: a name there
    must be in the hub's own cache on this machine.

    Raises:
        UsageError: there is no such model, or its tokenizer is not on this machine.
        PrerequisiteError: transformers is not installed.
        DataError: the directory is damaged.
        ConfigError: its chat template cannot be used token by token.
    """
    checkpoint = Path(model) if (Path(model) / _CHECKPOINT).is_file() else None
    base = read_checkpoint(checkpoint).base if checkpoint is not None else model
    directory = _directory(base, cache)
    loaded = _load(tokenizer or (str(directory) if directory is not None else base), cache)
    encoder = ChatEncoder(loaded)
    weights = _weights(directory, cache)
    named = Path(base).resolve().name if base not in known_models() and Path(base).is_dir() else base
    return ModelTokens(
        tokenizer=loaded,
        encoder=encoder,
        vocabulary=_vocabulary(loaded, directory),
        stop_ids=encoder.stop_ids | _stop_ids(directory),
        weights=weights,
        version=f"{named}@{weights[:12]}" if weights is not None else None,
        checkpoint=checkpoint,
        cache=cache,
    )


def _weights(directory: Path | None, cache: Path | None) -> str | None:
    if directory is None or not (directory / "config.json").is_file() or not any(directory.glob("*.safetensors")):
        return None
    return content_hash(directory, cache)


def _directory(model: str, cache: Path | None) -> Path | None:
    """The directory of a model on this machine, the hub's cache included; None where there is none."""
    if model in known_models():
        return resolve_model(model, cache)
    if Path(model).is_dir():
        return Path(model)
    try:
        found = _late("huggingface_hub").try_to_load_from_cache(model, "config.json")
    except ValueError:  # it can be no name on the hub
        return None
    return Path(found).parent if isinstance(found, str) else None


def _late(module: str) -> Any:
    """Import a part of the train extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PrerequisiteError(
            "Sampling token by token from a server needs the model's tokenizer",
            why=f"{module} cannot be imported: {error}.",
            mend="Run: pip install 'patchgym[train]'",
        ) from error


def _load(place: str, cache: Path | None) -> Any:
    directory, transformers = _directory(place, cache), _late("transformers")
    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(str(directory or place), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        if directory is None:
            raise UsageError(
                f"The tokenizer of {place} is not on this machine",
                why="It is no directory and not in the Hugging Face cache; nothing is fetched from the hub.",
                mend="Name a directory that holds it with --tokenizer DIR.",
            ) from error
        raise DataError(f"Cannot read the tokenizer in {directory}", why=str(error).partition("\n")[0]) from error


def _vocabulary(tokenizer: Any, directory: Path | None) -> int:
    """The number of ids that the model has logits for; without its config, of those that its tokenizer knows."""
    told = _settings(directory, "config.json").get("vocab_size")
    return told if isinstance(told, int) else len(tokenizer)


def _stop_ids(directory: Path | None) -> frozenset[int]:
    """The ids that end an answer by the model's own generation settings."""
    told = _settings(directory, "generation_config.json").get("eos_token_id")
    return frozenset(one for one in (told if isinstance(told, list) else [told]) if isinstance(one, int))


def _settings(directory: Path | None, name: str) -> dict[str, object]:
    file = directory / name if directory is not None else None
    if file is None or not file.is_file():
        return {}
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file} is no JSON", why=str(error)) from error
    return found if isinstance(found, dict) else {}
