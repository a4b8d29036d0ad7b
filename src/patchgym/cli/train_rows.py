"""``patchgym train --rows``: what an update would be made of, as a file for another trainer."""

from pathlib import Path

from pydantic import JsonValue

from patchgym.cli.console import show_json, show_line
from patchgym.cli.dry_run import rows_of
from patchgym.cli.recipe import TrainRecipe
from patchgym.cli.train_data import gather
from patchgym.errors import UsageError
from patchgym.train import PolicyGradientSettings


def hand_over(recipe: TrainRecipe, out: Path, as_json: bool) -> None:
    """Write the rows of a recipe, and say what they are.

    Raises:
        UsageError: there are no runs, or the advantages come of a value head, which is there only while it is trained.
        DataError: there is no row.
    """
    from patchgym.trainers.handover import write_rows

    settings = recipe.settings
    imitation = not isinstance(settings, PolicyGradientSettings)
    if recipe.algorithm == "reward_model":
        raise UsageError("A reward model is not made of rows", mend="Choose sft, rejection or a policy gradient.")
    if isinstance(settings, PolicyGradientSettings) and settings.choices.baseline == "value":
        raise UsageError(
            f"The advantages of {recipe.algorithm} cannot be written down",
            why="They come of a value head, which is trained with the policy.",
            mend="Choose an algorithm with a baseline of the group: dr_grpo, grpo, rloo.",
        )
    material = gather(recipe)
    rows = rows_of(recipe, material)
    tasks = {one.id: one.task_id for one in material.trajectories}
    write_rows(rows, tasks, out, logged=not imitation)
    ids, trained = sum(len(row.ids) for row in rows.rows), sum(row.trained for row in rows.rows)
    left_out: dict[str, JsonValue] = {str(reason): count for reason, count in sorted(rows.left_out.items())}
    if as_json:
        show_json({"out": str(out), "rows": len(rows.rows), "ids": ids, "trained": trained, "left_out": left_out})
        return
    show_line(f"{len(rows.rows)} rows with {ids} ids, of which {trained} are trained, written to {out}.")
    for reason, count in left_out.items():
        show_line(f"Left out: {count} x {reason}.")
