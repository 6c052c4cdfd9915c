"""Associative recall with one layer and one head: every kind of attention, against the number of pairs.

    python benchmarks/associative_recall.py [--quick] [--jobs N] [--dask ADDRESS] [--out FILE]

`k1 v1 ... kP vP q`, P = 2 to 9, 16 keys and values, no feed-forward layer (softmax with one at P = 4 and 6), queries
and keys normalized, five paired seeds. Couplings start at zero, and at 1 between neighbors; at P = 4 also at other
starts. Learning rates are chosen at P = 4 on tuning seeds. Exact enumeration throughout; training through circuits is
`recall_ladder.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grid import Cell, options, run_grid
from protocol import make
from started import STARTED, combinations, quick_cells, reported, train_cell, tuning_cells

#: All kinds at even numbers of pairs; at odd ones those that are to be told apart.
PAIRS, ODD_PAIRS = (4, 6, 2, 8), (9, 7, 5, 3)
AT_ODD = (("softmax", 0.0), ("h+J", 1.0))
TUNED_AT: Cell = {"pairs": 4}
START = 1.0
STARTS = (0.25, 0.5, 0.75, 1.5, 2.0)


def cells(path: Path) -> list[Cell]:
    """What is reported, at the rates that tuning chose."""
    every = [({"pairs": pairs}, *one) for pairs in PAIRS for one in combinations(START)]
    odd = [({"pairs": pairs}, *one) for pairs in ODD_PAIRS for one in AT_ODD]
    main = [reported(at, kind, start, path, TUNED_AT) for at, kind, start in every + odd]
    starts = [reported({"pairs": 4}, kind, start, path, TUNED_AT) for start in STARTS for kind in STARTED]
    deeper = [reported({"pairs": pairs}, "softmax", 0.0, path, TUNED_AT, ffn=True) for pairs in (4, 6)]
    first = len(combinations(START))
    return main[:first] + starts + deeper + main[first:]


def run(pairs: int, **cell: Any) -> dict[str, Any]:
    """One kind of attention, its seeds side by side."""
    task = make("recall", 2 * pairs + 1, num_keys=16, num_values=16)
    return train_cell(task, **cell) | {"chance": task.chance}


def main() -> None:
    given = options(__doc__, "associative_recall")
    more: dict[str, Any] = {"jobs": given.jobs, "dask": given.dask}
    if given.quick:
        return run_grid("associative_recall", quick_cells({"pairs": 2}, START), run, given.out, **more)
    run_grid("associative_recall", tuning_cells(TUNED_AT, START), run, given.out, **more)
    run_grid("associative_recall", cells(given.out), run, given.out, **more)


if __name__ == "__main__":
    main()
