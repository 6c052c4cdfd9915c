"""Exploratory, not part of the protocol: why couplings do not help at brackets, T = 16, without a feed-forward layer.

    python benchmarks/exploration.py [--quick] [--jobs N] [--dask ADDRESS] [--out FILE]

Each variation changes one thing of the protocol's run (its tuned rate, 1500 steps, width 32, `J = 0` at the start,
scores not normalized), five seeds that are reported nowhere else (2000 to 2004). What looks better here would have to
be shown again on others.
"""

from __future__ import annotations

from typing import Any

from grid import Cell, options, run_grid
from protocol import STEPS, best_setting, make, outcome, train_kind

LENGTH = 16
FIRST_SEED, SEEDS = 2000, 5
#: What is changed, and the kinds that it concerns.
VARIATIONS: dict[str, dict[str, Any]] = {
    "as in the protocol": {},
    "three times the steps": {"steps_factor": 3},
    "queries and keys normalized": {"qk_norm": True},
    "width 64": {"width": 64},
    "rates a third": {"rate": 1 / 3},
    "J from +0.5 between neighbors": {"coupling_init": 0.5},
    "J from -0.5 between neighbors": {"coupling_init": -0.5},
    "J at a tenth of the rate": {"pair_rate": 0.1},
}
ONLY_COUPLED = ("J from +0.5 between neighbors", "J from -0.5 between neighbors", "J at a tenth of the rate")
COMPARED = ("softmax", "h-only", "h+J")


def cells(quick: bool) -> list[Cell]:
    """One variation at a time."""
    if quick:
        return [{"variation": "as in the protocol", "kind": kind, "seeds": 2, "steps": 5} for kind in COMPARED]
    return [
        {"variation": name, "kind": kind, "seeds": SEEDS, "steps": STEPS["brackets"] * change.get("steps_factor", 1)}
        for name, change in VARIATIONS.items()
        for kind in COMPARED
        if kind == "h+J" or name not in ONLY_COUPLED
    ]


def run(variation: str, kind: str, seeds: int, steps: int) -> dict[str, Any]:
    """Five seeds side by side."""
    change = VARIATIONS[variation]
    lr, factor = best_setting("brackets", kind, False)
    lr, factor = lr * change.get("rate", 1.0), factor * change.get("pair_rate", 1.0)
    given = {name: change[name] for name in ("qk_norm", "width", "coupling_init") if name in change}
    chosen = range(FIRST_SEED, FIRST_SEED + seeds)
    tasks = [make("brackets", LENGTH, fold=seed % 10) for seed in chosen]
    model, curves, _ = train_kind(tasks, kind, chosen, lr, factor, steps=steps, ffn=False, **given)
    return outcome(model, curves) | {"lr": lr, "factor": factor}


def main() -> None:
    given = options(__doc__, "exploration")
    run_grid("exploration", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
