"""``patchgym train --dry-run``: what an update comes to, without loading a weight."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.cli.console import show_json, show_line, show_table
from patchgym.cli.recipe import TrainRecipe
from patchgym.cli.train_data import Material, gather
from patchgym.errors import DataError, UsageError
from patchgym.train import PolicyGradientSettings, RowSet, imitation_rows

if TYPE_CHECKING:
    from patchgym.train.estimate import Estimate, ModelShape

_GB = 1e9


def dry_run(recipe: TrainRecipe, as_json: bool) -> int:
    """Count, and say; the exit code, 1 where there is nothing to train on.

    Raises:
        UsageError: neither the model's config nor its shape is there, or neither runs nor expected rows.
    """
    from patchgym.train.estimate import estimate, expected_rows

    shape = recipe.shape or shape_of(recipe.start)
    if recipe.runs:
        rows = rows_of(recipe, gather(recipe))
    elif recipe.expected is not None:
        rows = expected_rows(recipe.expected, recipe.settings)
    else:
        raise UsageError(
            "There is nothing to count",
            mend="Name runs (--run RUN), or the lengths of rows in the recipe's table expected.",
        )
    found = estimate(rows, shape, recipe.settings, recipe.machine)
    if as_json:
        show_json(found)
    else:
        _show(found, recipe)
    return 0 if found.rows else 1


def shape_of(model: str) -> "ModelShape":
    """The shape of a model on this machine, from its config alone.

    Raises:
        UsageError: there is no such model.
        DataError: its config lacks something.
    """
    from patchgym.policy.models import read_checkpoint, resolve_model
    from patchgym.train.estimate import ModelShape

    directory = resolve_model(model)
    if (directory / "checkpoint.json").is_file():
        return shape_of(read_checkpoint(directory).base)
    try:
        told = json.loads((directory / "config.json").read_bytes())
        return ModelShape(
            hidden=told["hidden_size"],
            layers=told["num_hidden_layers"],
            heads=told["num_attention_heads"],
            kv_heads=told.get("num_key_value_heads") or told["num_attention_heads"],
            intermediate=told["intermediate_size"],
            vocabulary=told["vocab_size"],
            tied=told.get("tie_word_embeddings", False),
            biases=told.get("attention_bias", told.get("model_type") == "qwen2"),
            head=told.get("head_dim"),
            context=told["max_position_embeddings"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"The config of {model} does not say its size",
            why=f"{type(error).__name__}: {error}",
            mend="Give it in the recipe's table shape.",
        ) from error


def rows_of(recipe: TrainRecipe, material: Material) -> RowSet:
    """The rows of what is trained on, as the update would have them."""
    from patchgym.policy.models import read_checkpoint
    from patchgym.policy.tokens import load_tokens
    from patchgym.train.groups import policy_gradient_rows

    settings = recipe.settings
    encoder = load_tokens(recipe.start).encoder
    if not isinstance(settings, PolicyGradientSettings):
        return imitation_rows(material.trajectories, encoder, max_length=settings.max_row_tokens)
    checkpoint = Path(recipe.start) if (Path(recipe.start) / "checkpoint.json").is_file() else None
    return policy_gradient_rows(
        material.trajectories,
        settings,
        updates=read_checkpoint(checkpoint).step if checkpoint is not None else 0,
        trees=material.trees,
        key_files={name: task.key_files for name, task in material.tasks.items()},
        encoder=encoder if settings.check_prompts else None,
    )


def _show(found: "Estimate", recipe: TrainRecipe) -> None:
    machine = recipe.machine
    shared = f"{1 - found.read_tokens / found.total_tokens:.0%} of all" if found.total_tokens else "none"
    show_line(
        f"{found.rows} rows in {found.steps} steps: {found.total_tokens} ids, of which {found.trained_tokens} are "
        f"trained and {found.read_tokens} are read ({shared} shared); the longest row has {found.longest_row}."
    )
    if found.groups:
        show_line(f"{found.groups} groups, {found.zero_variance_groups} without variance.")
    for reason, count in found.left_out.items():
        show_line(f"Left out: {count} x {reason}.")
    devices = f"each of {machine.devices} devices" if machine.devices > 1 else "one device"
    rows = [
        (f"base ({machine.dtype}) and adapter", _gb(found.weight_bytes)),
        ("gradients", _gb(found.gradient_bytes)),
        ("optimizer", _gb(found.optimizer_bytes)),
        ("activations (estimate)", _gb(found.activation_bytes)),
        ("logits", _gb(found.logit_bytes)),
        ("together", _gb(found.total_bytes)),
    ]
    show_table(f"\nGB on {devices}", ("part", "GB"), rows)
    show_line(f"{found.parameters / 1e6:.1f}M weights, of which {found.trainable_parameters / 1e6:.2f}M can move.")
    if found.fits is not None:
        fits = "It fits" if found.fits else "It does not fit"
        show_line(f"{fits} {machine.memory_gb:g} GB{f' ({machine.name})' if machine.name else ''}.")
    if found.seconds is None:
        show_line("Time: not estimated; state machine.tokens_per_second or machine.tflops.")
    else:
        stated = machine.tokens_per_second is not None
        by = (
            "at the stated tokens/s" if stated else f"{found.flops:.2e} operations at {machine.utilisation:.0%} of peak"
        )
        show_line(f"Time: {found.seconds / 60:.1f} min, {by}.")


def _gb(count: int) -> str:
    return f"{count / _GB:.2f}"
