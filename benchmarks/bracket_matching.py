"""Bracket matching: every kind of attention against length, with and without the feed-forward layer.

    python benchmarks/bracket_matching.py [--quick] [--jobs N] [--dask ADDRESS] [--out FILE]

The main form (one kind, marked, full attention) at T = 8 to 16, and without that layer at 20; two kinds, and the causal
form, at T = 12 and 16 with five of the seeds. Ten paired seeds side by side in each cell, each tested on another tenth
of the words. Records hold final accuracy per seed, its dependence on the distance and the depth of the pair that is
asked for, learning curves and the learned numbers over pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from grid import Cell, options, run_grid
from protocol import KINDS, STEPS, best_setting, make, outcome, train_kind
from torch import Tensor

from qboltz.experiments.stacked import StackedTransformer
from qboltz.tasks.base import Batch

SEEDS = 10
LENGTHS = (12, 16, 8, 14, 10, 20)
#: Beyond the paper, without the feed-forward layer only: with couplings a run takes a quarter of an hour.
LONGEST = 20
#: The causal form asks at every closing bracket: a quarter of the sequences ask about as many questions.
CAUSAL_BATCH = 16
MAIN = {"kinds": 1, "form": "marked"}
OTHERS = ({"kinds": 2, "form": "marked"}, {"kinds": 1, "form": "causal"})


def cells(quick: bool) -> list[Cell]:
    """The lengths of the main claim first."""
    if quick:
        return [
            MAIN | {"length": 8, "ffn": False, "kind": kind, "seeds": 2, "steps": 20} for kind in ("softmax", "h+J")
        ]
    rest = {"seeds": SEEDS, "steps": STEPS["brackets"]}
    main = [
        MAIN | {"length": length, "ffn": ffn, "kind": kind} | rest
        for length in LENGTHS
        for ffn in ((False,) if length == LONGEST else (False, True))
        for kind in KINDS
    ]
    others = [
        form | {"length": length, "ffn": True, "kind": kind} | rest | {"seeds": SEEDS // 2}
        for length in (12, 16)
        for form in OTHERS
        for kind in KINDS
    ]
    return main + others


def run(length: int, ffn: bool, kind: str, kinds: int, form: str, seeds: int, steps: int) -> dict[str, Any]:
    """Train one cell and measure it; seed ``s`` is tested on the ``s``-th tenth of all words."""
    tasks = [make("brackets", length, kinds=kinds, form=form, fold=seed % 10) for seed in range(seeds)]
    lr, factor = best_setting("brackets", kind, ffn) if steps == STEPS["brackets"] else (3e-3, 1.0)
    batch_size = CAUSAL_BATCH if form == "causal" else None
    model, curves, test = train_kind(tasks, kind, range(seeds), lr, factor, steps=steps, ffn=ffn, batch_size=batch_size)
    distinct = [len(torch.cat([test.tokens[s], test.rows[s]], 1).unique(dim=0)) for s in range(seeds)]
    extra = {"lr": lr, "factor": factor, "distinct_test_sequences": distinct}
    return outcome(model, curves) | extra | by_pair(model, test, kinds)


@torch.no_grad()
def by_pair(model: StackedTransformer, test: Batch, kinds: int) -> dict[str, Any]:
    """Questions and right answers of every seed at each distance and depth of the pair: ``{value: [asked, right]}``."""
    pieces = [slice(start, start + 256) for start in range(0, test.tokens.shape[1], 256)]
    answers = torch.cat([model(test.tokens[:, part], test.rows[:, part]).argmax(-1) for part in pieces], 1)
    right = (answers == test.targets).flatten(1)  # (S, B Q)
    distance = (test.rows - test.targets).flatten(1)
    depth = heights(test.tokens >= kinds).gather(2, test.targets).flatten(1)
    return {"by_distance": _tally(distance, right), "by_depth": _tally(depth, right)}


def heights(closing: Tensor) -> Tensor:
    """Brackets open after each position, ``(..., T)``: at an opening bracket, the depth of its pair."""
    return (1 - 2 * closing.long()).cumsum(-1)


def _tally(value: Tensor, right: Tensor) -> dict[str, list[list[int]]]:
    hits = [(v, value == v) for v in value.unique().tolist()]
    return {str(v): [hit.sum(1).tolist(), (right & hit).sum(1).tolist()] for v, hit in hits}


def main() -> None:
    given = options(__doc__, "bracket_matching")
    run_grid("bracket_matching", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
