"""The one layer that all packages compute, its exact gradients, and what a record keeps of a measured step.

Magnetizations `m` (rows, n) of Ising models with fields `h` (rows, n) of their own and shared couplings, one number per
pair `J` (n (n - 1) / 2), then the loss `L = sum g m` with a fixed random `g`; the backward gives `dL/dh` and `dL/dJ`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from qboltz import AnnealingSchedule, ExactSolver, IsingModel, Solver, StatevectorSolver, magnetization

#: Scale of random fields and couplings: those of a trained attention layer, as in the other speed benchmarks.
SIGMA_H, SIGMA_J = 0.5, 0.1


@dataclass(frozen=True)
class Problem:
    """``fields (R, n)``, ``pairs (n (n - 1) / 2,)`` in the order of ``torch.triu_indices``, ``upstream (R, n)``."""

    fields: Tensor
    pairs: Tensor
    upstream: Tensor

    @classmethod
    def random(cls, num_spins: int, rows: int, seed: int, dtype: torch.dtype = torch.float32) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        pairs = SIGMA_J * torch.randn(num_spins * (num_spins - 1) // 2, generator=generator, dtype=dtype)
        fields = SIGMA_H * torch.randn(rows, num_spins, generator=generator, dtype=dtype)
        return cls(fields, pairs, torch.randn(rows, num_spins, generator=generator, dtype=dtype))

    @property
    def num_spins(self) -> int:
        return self.fields.shape[1]


@dataclass(frozen=True)
class Step:
    """A forward and a backward: ``m (R, n)``, ``dL/dh (R, n)``, ``dL/dJ (n (n - 1) / 2,)``."""

    magnetization: Tensor
    grad_fields: Tensor
    grad_pairs: Tensor


@dataclass(frozen=True)
class Method:
    """One way to compute the layer.

    Attributes:
        step: the forward and the backward of a problem.
        computes: what its numbers are: what is sampled, and which derivative is taken.
        circuits: circuits (or models sampled) so far, to be read before and after a step.
        unit: of what is counted, ``"circuits"`` or ``"models"``.
        beside: the methods of this package that are timed in the same rounds; the first is the nearest in kind.
    """

    step: Callable[[Problem], Step]
    computes: str
    circuits: Callable[[], int]
    unit: str = "circuits"
    beside: Sequence[str] = ()


def installed(distributions: Sequence[str]) -> dict[str, str] | None:
    """Versions of distributions, ``None`` if one of them is missing."""
    try:
        return {name: version(name) for name in distributions}
    except PackageNotFoundError:
        return None


def coupling_matrix(pairs: Tensor, num_spins: int) -> Tensor:
    """Symmetric ``(n, n)`` with zero diagonal, differentiable in the pairs."""
    first, second = torch.triu_indices(num_spins, num_spins, 1)
    upper = pairs.new_zeros(num_spins, num_spins).index_put((first, second), pairs)
    return upper + upper.mT


def differentiate(problem: Problem, forward: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """A step by autograd through ``forward(fields, pairs) -> m``."""
    fields, pairs = (values.clone().requires_grad_() for values in (problem.fields, problem.pairs))
    m = forward(fields, pairs)
    grad_fields, grad_pairs = torch.autograd.grad((m * problem.upstream).sum(), (fields, pairs))
    return Step(m.detach(), grad_fields, grad_pairs)


def solved(problem: Problem, solver: Solver) -> Step:
    """The step through a solver of this package."""
    n = problem.num_spins
    return differentiate(problem, lambda h, J: magnetization(h, coupling_matrix(J, n), solver=solver))


def boltzmann(problem: Problem) -> Step:
    """Exact enumeration of the Boltzmann distribution, in double precision."""
    return solved(_double(problem), ExactSolver())


def circuit(problem: Problem, schedule: AnnealingSchedule) -> Step:
    """The circuits' own plain averages and their derivative at infinitely many shots, in double precision."""
    return solved(_double(problem), StatevectorSolver(schedule, gradient="circuit", estimator="plain"))


def model(problem: Problem) -> IsingModel:
    return IsingModel(problem.fields, coupling_matrix(problem.pairs, problem.num_spins))


def _double(problem: Problem) -> Problem:
    return Problem(problem.fields.double(), problem.pairs.double(), problem.upstream.double())


def errors(step: Step, truth: Step) -> dict[str, float]:
    """Rms error of ``m``, and ``|estimate - truth| / |truth|`` of the two gradients over the whole batch."""
    return {
        "magnetization_rmse": (step.magnetization - truth.magnetization).square().mean().sqrt().item(),
        "grad_fields": _relative(step.grad_fields, truth.grad_fields),
        "grad_pairs": _relative(step.grad_pairs, truth.grad_pairs),
    }


def _relative(estimate: Tensor, truth: Tensor) -> float:
    return float((estimate - truth).norm() / truth.norm())


def rounds(
    methods: Mapping[str, Method], problem: Problem, schedule: AnnealingSchedule, repeats: int
) -> dict[str, dict[str, Any]]:
    """All methods in turn, ``repeats`` times after a warm-up on one row; what a record keeps of each.

    ``seconds`` are of the processor, which other programs on the machine hardly lengthen. All run on one thread, so on
    an idle machine they are those of the clock, ``wall_seconds``. Errors are root mean squares of the repetitions.
    """
    truths = {"boltzmann": boltzmann(problem), "circuit": circuit(problem, schedule)}
    first = Problem(problem.fields[:1], problem.pairs, problem.upstream[:1])
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    wall: dict[str, list[float]] = {name: [] for name in methods}
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {t: [] for t in truths} for name in methods}
    counted: dict[str, int] = {}
    for method in methods.values():
        method.step(first)
    for _ in range(repeats):
        for name, method in methods.items():
            before, start, began = method.circuits(), time.process_time(), time.perf_counter()
            step = method.step(problem)
            seconds[name].append(time.process_time() - start)
            wall[name].append(time.perf_counter() - began)
            counted[name] = method.circuits() - before
            for against, truth in truths.items():
                found[name][against].append(errors(step, truth))
    return {
        name: {
            "computes": method.computes,
            "beside": list(method.beside),
            "seconds": seconds[name],
            "median_seconds": statistics.median(seconds[name]),
            "wall_seconds": wall[name],
            method.unit: counted[name],
            **{f"against_{t}": _root_mean_square(found[name][t]) for t in truths},
        }
        for name, method in methods.items()
    }


def _root_mean_square(repeated: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        key: statistics.mean(values[key] ** 2 for values in repeated) ** 0.5
        for key in (repeated[0] if repeated else ())
    }
