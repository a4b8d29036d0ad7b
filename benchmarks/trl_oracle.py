"""What TRL makes of one batch, written down, so that tests can hold our losses to it where TRL is not installed.

Prints one JSON document: the batch, and for each loss of ``tests/train/oracle.py`` TRL's value and gradients by each
id's log-probability, computed by the ``_compute_loss`` of a real ``GRPOTrainer`` in float32, ours, and the largest
difference.

    pip install 'trl==1.16.*'
    PYTHONPATH=. python benchmarks/trl_oracle.py > tests/train/trl_oracle.json
"""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.train.oracle import CASES, our_results, sample, their_results, their_trainer
from tests.train.tiny import save_tiny_model

from patchgym.policy.models import load_base, quiet


def main() -> None:
    """Ask TRL and print."""
    given = sample()
    results = {}
    with tempfile.TemporaryDirectory() as folder, quiet():
        place = save_tiny_model(Path(folder) / "tiny")
        for name, case in CASES.items():
            loaded = load_base(str(place), cache=Path(folder))
            trainer = their_trainer(case, loaded.model, loaded.tokenizer, Path(folder) / "out")
            loss, gradient = their_results(case, given, trainer)
            our_value, ours = our_results(case, given)
            flat = [[value for row in part for value in row] for part in (ours, gradient)]
            results[name] = {
                "loss": loss,
                "gradient": gradient,
                "loss_differs_by": abs(our_value - loss),
                "gradient_differs_by": max(abs(a - b) for a, b in zip(*flat, strict=True)),
            }
    rows = [
        {
            "ids": row.ids,
            "trainable": row.trainable,
            "sampler": row.logprobs,
            "advantages": row.advantages,
            "trainer": trainer,
            "old": old,
            "reference": reference,
        }
        for row, trainer, old, reference in zip(given.rows, given.trainer, given.old, given.reference, strict=True)
    ]
    versions = {name: version(name) for name in ("trl", "torch", "transformers")}
    print(json.dumps({"versions": versions, "rows": rows, "theirs": results}))


if __name__ == "__main__":
    main()
