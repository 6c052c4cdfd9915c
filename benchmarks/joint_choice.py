"""Tasks where keys are chosen jointly: is there one that couplings solve and a linear mixing of scores does not?

    python benchmarks/joint_choice.py [--quick] [--jobs N] [--dask ADDRESS] [--out FILE]

The tasks of `joint_tasks.py`, one layer, one head, no feed-forward layer, every kind of attention from zero and,
couplings and mixing, from a start between neighbors (ferromagnetic, on the ring antiferromagnetic). Learning rates are
chosen on tuning seeds of two of the tasks; reported are five others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grid import Cell, options, run_grid
from joint_tasks import make_joint
from started import combinations, quick_cells, reported, train_cell, tuning_cells

#: Task, length, start between neighbors.
#: Learning rates are chosen on the first ring and on segments, which stand for the cases after them.
CASES = (("ring", 9, -0.7), ("ring", 13, -0.7), ("segments", 12, 1.0), ("latest", 13, 1.0), ("cues", 13, 1.0))
TUNED_AT: dict[str, Cell] = {"ring": {"task": "ring", "length": 9}, "segments": {"task": "segments", "length": 12}}
#: Tasks that mixing and couplings both solved in a first look: the other kinds are left out.
SOLVED = ("latest", "cues")
STARTS = {"ring": -0.7, "segments": 1.0}


def cells(path: Path) -> list[Cell]:
    """What is reported, at the rates that tuning chose."""
    return [
        reported(
            {"task": task, "length": length}, kind, begin, path, TUNED_AT["ring" if task == "ring" else "segments"]
        )
        for task, length, start in CASES
        for kind, begin in combinations(start)
        if task not in SOLVED or kind in ("softmax", "softmax+mixing", "h+J")
    ]


def run(task: str, length: int, **cell: Any) -> dict[str, Any]:
    """One kind of attention, its seeds side by side."""
    made = make_joint(task, length=length)
    return train_cell(made, **cell) | {"chance": made.chance}


def main() -> None:
    given = options(__doc__, "joint_choice")
    more: dict[str, Any] = {"jobs": given.jobs, "dask": given.dask}
    if given.quick:
        return run_grid("joint_choice", quick_cells({"task": "ring", "length": 9}, -0.7), run, given.out, **more)
    for task, at in TUNED_AT.items():
        run_grid("joint_choice", tuning_cells(at, STARTS[task]), run, given.out, **more)
    run_grid("joint_choice", cells(given.out), run, given.out, **more)


if __name__ == "__main__":
    main()
