"""What `dqa_fidelity.py` compares circuits with: samplers without circuits, mean field, a noisy device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fidelity_measures import (
    ESTIMATORS,
    Distances,
    Moments,
    distances,
    drawn_spins,
    empirical,
    exact_moments,
    moments,
    of_populations,
    rows_as_units,
    sampled,
    summary,
)
from torch import Tensor

from qboltz import AnnealingSchedule, AnnealingSolver, IsingModel
from qboltz.errors import ConvergenceError
from qboltz.fidelity import BoltzmannTarget
from qboltz.seeds import SeedStream
from qboltz.solvers.gibbs import GibbsSolver
from qboltz.solvers.mean_field import MeanFieldSolver

Errors = dict[str, Any]


def controls(target: BoltzmannTarget, batch: IsingModel, shots: Sequence[int], seed: int) -> Errors:
    """Samplers without circuits, with the polish of the circuits' samples, and mean field; rows are the units."""
    errors = {name: target_errors(target, q, batch, shots, seed) for name, q in free_samplers(target).items()}
    for name, per_chain in (("Gibbs", 8), ("Gibbs, a chain per sample", 1)):
        errors[name] = summary([rows_as_units(_gibbs(target, batch, shots, per_chain, seed))])
    return errors | mean_field(target, batch)


def free_samplers(target: BoltzmannTarget) -> dict[str, Tensor]:
    """Populations that know nothing, the fields alone, and everything."""
    return {
        "random spins": torch.full_like(target.log_p, 1 / target.log_p.shape[-1]),
        "independent spins": torch.softmax(target.fields @ target.table.mT, -1),
        "exact samples": target.log_p.exp(),
    }


def _gibbs(target: BoltzmannTarget, batch: IsingModel, shots: Sequence[int], per_chain: int, seed: int) -> Distances:
    found: Distances = {}
    for count in shots:
        solver = GibbsSolver(chains=count // per_chain, samples_per_chain=per_chain, seed=seed)
        spins = solver.solve(batch).spins
        for estimator in ESTIMATORS:
            for (_, quantity, size), value in sampled(target, spins, count, None, estimator).items():
                found[estimator, quantity, size] = value
    return found


def mean_field(target: BoltzmannTarget, batch: IsingModel) -> Errors:
    """Model by model, since one without a solution stops the whole batch; those are counted and left out."""
    errors: Errors = {}
    num_groups, num_rows, n = target.fields.shape
    first, second = torch.triu_indices(n, n, 1)
    for method in ("one_step", "naive", "tap"):
        found: list[Distances] = []
        failed = 0
        for group in range(num_groups):
            for row in range(num_rows):
                exact = Moments(target.mean[group, row, None, None], target.covariance[group, row, None, None])
                try:
                    answer = MeanFieldSolver(method).solve(
                        IsingModel(target.fields[group, row, None], target.couplings[group, None])
                    )
                    covariance = answer.covariance()[:, first, second]
                except ConvergenceError:
                    failed += 1
                    continue
                values = Moments(answer.magnetization().unsqueeze(0), covariance.unsqueeze(0))
                found.append({("", quantity, "infinite"): x for quantity, x in distances(values, exact).items()})
        errors[f"mean field, {method}"] = {**(summary(found) if len(found) > 1 else {}), "failed": failed}
    return errors


def noise(batch: IsingModel, schedule: AnnealingSchedule, backend: str, shots: int, seed: int) -> Errors:
    """A noisy device and the ideal circuit with as many samples; `shot` distances are from the ideal circuit."""
    target = BoltzmannTarget(batch)
    solver = AnnealingSolver(backend, schedule, shots=shots, seed=seed)
    spins = solver.solve(batch).spins
    q = target.populations(schedule)
    found: Distances = {}
    for estimator in ESTIMATORS:
        ideal = moments(target, q, estimator)
        for (_, quantity, size), value in sampled(target, spins, shots, ideal, estimator).items():
            found[estimator, quantity, size] = value
    circuit = solver.backend.program(batch.num_spins, schedule).circuit
    gates = sum(len(step.qubits) == 2 for step in circuit.data)
    ideal_errors = summary([of_populations(target, batch, q, (shots,), seed)])
    return {backend: summary([found]), "ideal": ideal_errors, "two_qubit_gates": gates}


def corrected(target: BoltzmannTarget, spins: Tensor) -> Tensor:
    r"""Magnetizations from samples with a control variate, ``(G, R, n)``.

    The conditional estimate of spin `k` moves with the sampled `s_l` by about `(1 - m_k^2) J_kl`, and `s_l` minus its
    own conditional mean `t_l` is 0 on average under the Boltzmann distribution. Subtracting that product puts the
    quiet `t_l` in the place of the noisy `s_l`: `<t_k> - (1 - <t_k>^2) sum_l J_kl <s_l - t_l>`.
    """
    s = spins.to(target.fields.dtype)
    t = torch.tanh(target.fields.unsqueeze(-2) + s @ target.couplings.unsqueeze(1))
    conditional, plain = t.mean(-2), s.mean(-2)
    return conditional - (1 - conditional.square()) * ((plain - conditional) @ target.couplings)


def correction(target: BoltzmannTarget, samplers: dict[str, Tensor], shots: int, seed: int) -> Errors:
    """The conditional estimator with and without the control variate, rows as units."""
    exact = exact_moments(target)
    errors: Errors = {}
    for name, q in samplers.items():
        spins = drawn_spins(q, shots, target.fields.shape[-1], SeedStream(seed))
        answers = {
            "conditional": moments(target, empirical(spins), "conditional"),
            "corrected": Moments(corrected(target, spins), None),
        }
        found: Distances = {}
        for estimator, answer in answers.items():
            for quantity, value in distances(answer, exact).items():
                found[estimator, quantity, str(shots)] = value
        errors[name] = summary([rows_as_units(found)])
    return errors


def target_errors(target: BoltzmannTarget, q: Tensor, batch: IsingModel, shots: Sequence[int], seed: int) -> Errors:
    """Of one sampler with populations `q`, rows as units."""
    return summary([rows_as_units(of_populations(target, batch, q, shots, seed))])


def exact_strength(target: BoltzmannTarget) -> float:
    """Root mean square magnetization of the Boltzmann distributions: what an answer of zero would miss."""
    return float(exact_moments(target).magnetization.square().mean().sqrt())
