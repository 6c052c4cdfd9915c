"""Learning rates for every kind of attention: as many settings each, on seeds and test data that are never reported.

    python benchmarks/tuning.py [--quick] [--jobs N] [--dask ADDRESS] [--data FILE] [--out FILE]

At T = 12, brackets with and without the feed-forward layer and text with it. `protocol.best_setting` reads the records.
"""

from __future__ import annotations

from typing import Any

from grid import Cell, options, run_grid
from protocol import KINDS, STEPS, TUNED_LENGTH, TUNING_SEEDS, TUNING_TEST_SEED, make, outcome, settings, train_kind

CASES = [("brackets", False), ("brackets", True), ("shakespeare", True)]


def cells(quick: bool) -> list[Cell]:
    """Every setting of every kind."""
    if quick:
        return [{"task": "brackets", "ffn": True, "kind": "h+J", "lr": 3e-3, "factor": 1.0, "steps": 20}]
    return [
        {"task": task, "ffn": ffn, "kind": kind, "lr": lr, "factor": factor, "steps": STEPS[task]}
        for task, ffn in CASES
        for kind in KINDS
        for lr, factor in settings(task, kind)
    ]


class Run:
    """Callable that workers can be sent: a cell's run, with the place of the text."""

    def __init__(self, data: str | None) -> None:
        self.data = data

    def __call__(self, task: str, ffn: bool, kind: str, lr: float, factor: float, steps: int) -> dict[str, Any]:
        made = make(task, TUNED_LENGTH[task], self.data)
        seeds = list(TUNING_SEEDS)
        tasks = [made] * len(seeds)
        model, curves, _ = train_kind(
            tasks, kind, seeds, lr, factor, steps=steps, ffn=ffn, test_seed=TUNING_TEST_SEED, evaluations=1
        )
        result = outcome(model, curves)
        return {name: result[name] for name in ("parameters", "loss", "accuracy", "note")}


def main() -> None:
    given = options(__doc__, "tuning")
    run = Run(None if given.data is None else str(given.data))
    run_grid("tuning", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
