"""Known couplings, recovered: the one experiment with a ground truth.

    python benchmarks/planted_couplings.py [--quick] [--jobs N] [--dask ADDRESS] [--out FILE]

A Boltzmann attention with known `J*` attends: for random fields `h`, one key is drawn from its weights
`(m_j + 1) / sum_k (m_k + 1)`, computed exactly. From `N` such pairs (fields, key), a student that knows the fields but
not `J*` learns `J` by maximum likelihood, starting at zero, through each solver. Recorded per seed: correlation and
share of equal signs between `J` and `J*` over pairs, and the root-mean-square error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from grid import Cell, options, run_grid
from torch import Tensor

from qboltz import AnnealingSchedule, ExactSolver, GibbsSolver, MeanFieldSolver, StatevectorSolver
from qboltz.ensemble import Solver
from qboltz.functional import attention_weights
from qboltz.spins import num_pairs, pair_indices

NUM_SPINS, SIGMA_H, SIGMA_J = 8, 1.0, 0.4
SIZES = (300, 3000, 30_000)
SEEDS = 5
STEPS, BATCH, LR = 300, 256, 0.03

SOLVERS = {
    "exact": lambda seed: ExactSolver(),
    "circuits, fitted p=4, infinite shots": lambda seed: StatevectorSolver(AnnealingSchedule.fitted(4)),
    "circuits, fitted p=4, 256 shots, plain": lambda seed: StatevectorSolver(
        AnnealingSchedule.fitted(4), shots=256, estimator="plain", seed=seed
    ),
    "circuits, fitted p=4, 256 shots, conditional": lambda seed: StatevectorSolver(
        AnnealingSchedule.fitted(4), shots=256, seed=seed
    ),
    "circuits, adaptive p=4, 256 shots, conditional": lambda seed: StatevectorSolver(
        "adaptive", shots=256, seed=seed, num_layers=4
    ),
    "Gibbs, 256 samples": lambda seed: GibbsSolver(chains=256, samples_per_chain=1, seed=seed),
    "mean field, one step": lambda seed: MeanFieldSolver("one_step"),
    "mean field, TAP": lambda seed: MeanFieldSolver("tap"),
}


def cells(quick: bool) -> list[Cell]:
    """Every solver, size of the data and seed."""
    if quick:
        names = ("exact", "mean field, TAP")
        return [{"solver": name, "examples": 300, "seed": 0, "steps": 30} for name in names]
    return [
        {"solver": name, "examples": size, "seed": seed, "steps": STEPS}
        for size in (3000, 30_000, 300)  # an unfinished grid has whole columns
        for seed in range(SEEDS)
        for name in SOLVERS
    ]


def teacher(examples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """``J*`` over pairs, fields ``(N, n)`` and the keys attended to ``(N,)``; more examples extend fewer."""
    generator = torch.Generator().manual_seed(8_000_000 + seed)
    planted = SIGMA_J * torch.randn(num_pairs(NUM_SPINS), generator=generator)
    fields = SIGMA_H * torch.randn(max(SIZES), NUM_SPINS, generator=generator)
    weights = attention_weights(fields, dense(planted), solver=ExactSolver())
    keys = torch.multinomial(weights, 1, generator=generator).squeeze(1)
    return planted, fields[:examples], keys[:examples]


def dense(pairs: Tensor) -> Tensor:
    """``(n (n - 1) / 2,)`` to the symmetric matrix."""
    first, second = map(torch.from_numpy, pair_indices(NUM_SPINS))
    matrix = pairs.new_zeros(NUM_SPINS, NUM_SPINS)
    matrix[first, second] = pairs
    return matrix + matrix.mT


def learn(fields: Tensor, keys: Tensor, solver: Solver, steps: int, seed: int) -> Tensor:
    """Couplings over pairs of greatest likelihood, by Adam with a cosine schedule."""
    pairs = torch.zeros(num_pairs(NUM_SPINS), requires_grad=True)
    optimizer = torch.optim.Adam([pairs], lr=LR)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(9_000_000 + seed)
    for _ in range(steps):
        chosen = torch.randint(len(keys), (BATCH,), generator=generator)
        weights = attention_weights(fields[chosen], dense(pairs), solver=solver)
        likelihood = weights.gather(1, keys[chosen].unsqueeze(1)).clamp_min(1e-6).log().mean()
        optimizer.zero_grad()
        (-likelihood).backward()
        optimizer.step()
        rates.step()
    return pairs.detach()


def run(solver: str, examples: int, seed: int, steps: int) -> dict[str, Any]:
    """One student."""
    planted, fields, keys = teacher(examples, seed)
    found = learn(fields, keys, SOLVERS[solver](seed), steps, seed)
    correlation = float(np.corrcoef(found.numpy(), planted.numpy())[0, 1]) if bool(found.any()) else 0.0
    signs = float((found.sign() == planted.sign()).double().mean())
    error = float((found - planted).square().mean().sqrt())
    return {
        "correlation": correlation,
        "equal_signs": signs,
        "rms_error": error,
        "learned": [round(value, 4) for value in found.tolist()],
        "planted": [round(value, 4) for value in planted.tolist()],
        "note": f"correlation {correlation:.3f}",
    }


def main() -> None:
    given = options(__doc__, "planted_couplings")
    run_grid("planted_couplings", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
