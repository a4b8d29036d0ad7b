"""``patchgym value score``: a value model's scores of a run."""

from pathlib import Path

import click

from patchgym.cli.console import show_json, show_table


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("run_path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--hash", "expected", default="", help="Refuse a model with another hash.")
@click.option("--levels", type=click.IntRange(2), help="Cut scores to this many levels.")
@click.option("--json", "as_json", is_flag=True, help="Print every score as JSON.")
def command(model_path: Path, run_path: Path, expected: str, levels: int | None, as_json: bool) -> None:
    """How likely each attempt of a run is to solve its task, after each of its steps."""
    from patchgym.cli.value.attempts import opened, scored
    from patchgym.reward.value.model import levelled
    from patchgym.reward.value.opened import load_value

    model = load_value(model_path, expected)
    (run,) = opened([run_path])
    found = [(one, [levelled(score, levels or 0) for score in scores]) for one, scores in scored(model, run)]
    if as_json:
        show_json({"hash": model.hash, "scores": {one.id: list(scores) for one, scores in found}})
        return
    rows = [(one.id, str(len(scores)), f"{scores[-1]:.3f}", _line(scores)) for one, scores in found]
    show_table(f"{len(found)} attempts, model {model.hash[:12]}", ("trajectory", "steps", "score", "by step"), rows)


def _line(scores: list[float]) -> str:
    """Scores as tenths, a character each."""
    return "".join("0123456789"[min(9, int(score * 10))] for score in scores)
