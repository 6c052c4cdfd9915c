"""Three gradients of an annealing circuit, beside the exact gradient of the Boltzmann distribution.

    python benchmarks/gradients.py [--quick] [--out FILE]

For `L = sum_j g_j m_j` with a random `g` and random models, `h ~ N(0, sigma_h)`, `J ~ N(0, sigma_J)`, of seeds that no
schedule was fitted on: the covariance rule applied to the circuit's spins (at infinite shots, and its variance at 64
and 256 shots), the circuit's own derivative (autograd through the simulator), and that derivative as a machine would
measure it, by parameter shifts. The correctness gate: shifts and autograd must agree, and the covariance rule applied
to the exact distribution must give the exact gradient. Finished cells are not repeated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from records import append, environment, place, read
from torch import Tensor

from qboltz import AnnealingSchedule, ExactSolver, IsingModel, StatevectorSolver
from qboltz.ensemble import ESTIMATORS, Estimator, SampledEnsemble, SpinEnsemble
from qboltz.fidelity import BoltzmannTarget
from qboltz.modelset import ModelSet
from qboltz.simulator import Anneals, probabilities
from qboltz.spins import spin_table

CELLS = [(0.5, 0.1), (0.5, 0.3), (1.0, 0.5)]
DEPTHS = [1, 2, 4, 8]
SHOTS = (64, 256)
NUM_SPINS = 8
COUNT = 24
REPEATS = 64
SEED = 20_261_202


def gradient(ensemble: SpinEnsemble, upstream: Tensor) -> Tensor:
    """``dL/dh`` and, per pair, ``dL/dJ`` of every model, ``(N, n + n (n - 1) / 2)``."""
    fields, couplings = ensemble.pullback(upstream)
    n = fields.shape[-1]
    first, second = torch.triu_indices(n, n, 1)
    pairs = 2 * couplings.reshape(-1, n, n)[:, first, second]  # the two entries of a pair share its derivative
    return torch.cat([fields.reshape(-1, n), pairs], -1)


def shifted(model: IsingModel, upstream: Tensor, schedule: AnnealingSchedule) -> tuple[Tensor, Tensor, int]:
    """The circuit's gradient by parameter shifts, its variance at one shot per circuit, and the circuits per model.

    An angle ``a`` of ``exp(i a P)``, with ``P`` a product of Pauli operators, has the derivative
    ``f(a + pi/4) - f(a - pi/4)``; each parameter of the model has one angle in each layer.
    """
    groups = model.groups
    n, count = groups.num_spins, groups.num_groups
    g = upstream.reshape(count, n)
    f = spin_table(n, dtype=g.dtype) @ g.mT  # (2**n, N)
    first, second = torch.triu_indices(n, n, 1)
    anneals = Anneals.of(groups.fields[:, 0], groups.couplings, torch.arange(count), schedule)
    total = g.new_zeros(count, n + len(first))
    variance = torch.zeros_like(total)
    for number, layer in enumerate(schedule.layers()):
        for column in range(n + len(first)):
            spin = column < n
            weight = layer.field_angle if spin else layer.coupling_angle
            for sign in (1, -1):
                fields, couplings = anneals.fields.clone(), anneals.couplings.clone()
                if spin:
                    fields[number, :, column] += sign * math.pi / 4
                else:
                    i, j = first[column - n], second[column - n]
                    couplings[number, :, i, j] += sign * math.pi / 4
                    couplings[number, :, j, i] += sign * math.pi / 4
                p = probabilities(replace(anneals, fields=fields, couplings=couplings)).mT  # (2**n, N)
                mean = (p * f).sum(0)
                total[:, column] += sign * weight * mean
                variance[:, column] += weight**2 * ((p * f.square()).sum(0) - mean.square())
    return total, variance, 2 * schedule.num_layers * (n + len(first))


def compared(estimate: Tensor, truth: Tensor, num_fields: int) -> dict[str, float]:
    """Relative error, that of the two parts, and cosine of gradients ``(N, k)``: means over the models."""
    parts = {"relative_error": slice(None), "fields": slice(num_fields), "couplings": slice(num_fields, None)}
    errors = {
        name: ((estimate - truth)[:, part].norm(dim=-1) / truth[:, part].norm(dim=-1)).mean().item()
        for name, part in parts.items()
    }
    return errors | {"cosine": torch.cosine_similarity(estimate, truth, dim=-1).mean().item()}


def noise(
    model: IsingModel,
    upstream: Tensor,
    schedule: AnnealingSchedule,
    estimator: Estimator,
    shots: int,
    truth: Tensor,
    repeats: int,
) -> dict[str, float]:
    """Of the covariance rule at ``shots`` samples: variance and squared error, relative to the squared gradient."""
    solver = StatevectorSolver(schedule, shots=shots, estimator=estimator, seed=SEED)
    draws = torch.stack([gradient(solver.solve(model), upstream) for _ in range(repeats)])
    square = truth.square().sum(-1)
    cosine = torch.cosine_similarity(draws, truth.expand_as(draws), dim=-1)
    return {
        "variance": (draws.var(0).sum(-1) / square).mean().item(),
        "squared_error": ((draws - truth).square().sum(-1).mean(0) / square).mean().item(),
        "cosine": cosine.mean().item(),
    }


def measure(model: IsingModel, upstream: Tensor, schedule: AnnealingSchedule, repeats: int) -> dict[str, Any]:
    """All gradients of one schedule on one set of models."""
    n = model.num_spins
    truth = gradient(ExactSolver().solve(model), upstream)
    record: dict[str, Any] = {}
    own: dict[str, Tensor] = {}
    for estimator in ESTIMATORS:
        rule = gradient(StatevectorSolver(schedule, estimator=estimator).solve(model), upstream)
        own[estimator] = gradient(
            StatevectorSolver(schedule, gradient="circuit", estimator=estimator).solve(model), upstream
        )
        record[estimator] = {
            "covariance": compared(rule, truth, n),
            "circuit": compared(own[estimator], truth, n),
            "covariance_against_circuit": compared(rule, own[estimator], n),
            **{
                f"covariance, {shots} shots": noise(model, upstream, schedule, estimator, shots, truth, repeats)
                for shots in SHOTS
            },
        }
    shifts, variance, circuits = shifted(model, upstream, schedule)
    torch.testing.assert_close(shifts, own["plain"], rtol=1e-8, atol=1e-8)
    record["parameter_shift"] = {
        "circuits": circuits,
        **{f"variance, {shots} shots": _relative(variance / shots, truth) for shots in SHOTS},
    }
    return record


def _relative(variance: Tensor, truth: Tensor) -> float:
    return (variance.sum(-1) / truth.square().sum(-1)).mean().item()


def check(model: IsingModel, upstream: Tensor) -> None:
    """Both estimators, on the exact distribution, give the exact gradient."""
    truth = gradient(ExactSolver().solve(model), upstream)
    p = BoltzmannTarget(model).log_p.exp()
    for estimator in ESTIMATORS:
        ensemble = SampledEnsemble(model, spin_table(model.num_spins, dtype=p.dtype), p, estimator)
        torch.testing.assert_close(gradient(ensemble, upstream), truth, rtol=1e-8, atol=1e-8)


def schedules(depth: int) -> Iterator[tuple[str, AnnealingSchedule]]:
    yield "linear", AnnealingSchedule.linear(depth)
    for ensemble in ("weak", "middle", "broad"):
        yield f"fitted, {ensemble}", AnnealingSchedule.fitted(depth, ensemble)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="n = 4, depths 1 and 2, under a minute")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "gradients", options.quick)
    torch.set_num_threads(options.threads)
    num_spins, depths, repeats = (4, DEPTHS[:2], 4) if options.quick else (NUM_SPINS, DEPTHS, REPEATS)
    done = {(r["num_spins"], r["sigma_h"], r["sigma_J"], r["layers"]) for r in read(options.out)}
    for sigma_h, sigma_j in CELLS:
        models = ModelSet.random(sigma_h, sigma_j, sizes=(num_spins,), count=COUNT, seed=SEED)
        (model,) = models.batches
        upstream = torch.randn(model.fields.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
        check(model, upstream)
        for layers in depths:
            if (num_spins, sigma_h, sigma_j, layers) in done:
                continue
            rows = {name: measure(model, upstream, schedule, repeats) for name, schedule in schedules(layers)}
            record = {"benchmark": "gradients", "num_spins": num_spins, "sigma_h": sigma_h, "sigma_J": sigma_j}
            record |= {"layers": layers, "models": COUNT, "repeats": repeats, "seed": SEED, "schedules": rows}
            append(options.out, record | environment())
            errors = rows["fitted, broad"]["plain"]
            print(
                f"({sigma_h}, {sigma_j}) p={layers}, fitted: relative error of the covariance rule "
                f"{errors['covariance']['relative_error']:.3f}, of the circuit gradient "
                f"{errors['circuit']['relative_error']:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
