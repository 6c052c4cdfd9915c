"""Character-level Tiny Shakespeare: perplexity of every kind of attention against the length of the window.

    python benchmarks/length_scaling.py [--quick] [--jobs N] [--dask ADDRESS] [--data FILE] [--out FILE]

T = 4 to 12 with eight paired seeds, 16 and 20, beyond the paper's enumeration, with four.
"""

from __future__ import annotations

from typing import Any

from grid import Cell, options, run_grid
from protocol import KINDS, STEPS, best_setting, make, outcome, train_kind

LENGTHS = (12, 4, 8, 10, 6, 16, 20)


def seeds_at(length: int) -> int:
    """Eight to T = 12, four beyond."""
    return 8 if length <= 12 else 4


def cells(quick: bool) -> list[Cell]:
    """The lengths of the main claim first."""
    if quick:
        return [{"length": 4, "kind": kind, "seeds": 2, "steps": 10} for kind in ("softmax", "h+J")]
    steps = STEPS["shakespeare"]
    return [
        {"length": length, "kind": kind, "seeds": seeds_at(length), "steps": steps}
        for length in LENGTHS
        for kind in KINDS
    ]


class Run:
    """A cell's run, with the place of the text."""

    def __init__(self, data: str | None) -> None:
        self.data = data

    def __call__(self, length: int, kind: str, seeds: int, steps: int) -> dict[str, Any]:
        task = make("shakespeare", length, self.data)
        full = steps == STEPS["shakespeare"]
        lr, factor = best_setting("shakespeare", kind, True) if full else (3e-3, 1.0)
        model, curves, _ = train_kind([task] * seeds, kind, range(seeds), lr, factor, steps=steps)
        return outcome(model, curves) | {"lr": lr, "factor": factor}


def main() -> None:
    given = options(__doc__, "length_scaling")
    run = Run(None if given.data is None else str(given.data))
    run_grid("length_scaling", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
