"""Distances between a sampler and the Boltzmann distribution, model by model, with standard errors over the models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qboltz import IsingModel
from qboltz.fidelity import BoltzmannTarget
from qboltz.gibbs import polish, polish_weights
from qboltz.seeds import SeedStream, integer_seed
from qboltz.simulator import draw
from qboltz.solvers.statevector import spins_of

ESTIMATORS = ("plain", "conditional")
#: Samples that are polished too.
POLISHED_SHOTS = 256
#: Mean squares over the spins or pairs of a model, of which tables give the root; the others are averaged as they are.
SQUARED = ("magnetization", "covariance")
SHOT = " shot"
#: Distances by (estimator, with " polished" after a Gibbs sweep; quantity; "infinite", "64", "64 shot", ...): the last
#: is from the sampler's own limit.
Distances = dict[tuple[str, str, str], Tensor]


@dataclass(frozen=True)
class Moments:
    """Magnetizations ``(G, R, n)`` and covariances of pairs ``(G, R, n (n - 1) / 2)``, if there are any."""

    magnetization: Tensor
    covariance: Tensor | None


def moments(target: BoltzmannTarget, q: Tensor, estimator: str) -> Moments:
    """Of populations ``q`` ``(G, R, 2**n)``; the conditional estimator puts ``tanh(h_k + sum_l J_kl s_l)`` for one spin
    of a pair, the average of both orders."""
    if estimator == "plain":
        return Moments(*target.moments(q))
    n = target.table.shape[1]
    first, second = torch.triu_indices(n, n, 1)
    local = target.table @ target.couplings  # (G, 2**n, n)
    means, covariances = [], []
    for row in range(q.shape[1]):
        given_others = torch.tanh(target.fields[:, row, None] + local)
        weights = q[:, row].unsqueeze(-1)  # (G, 2**n, 1)
        mean = (weights.mT @ given_others).squeeze(-2)
        products = (weights * target.table).mT @ given_others
        pairs = 0.5 * (products + products.mT)[:, first, second]
        means.append(mean)
        covariances.append(pairs - mean[:, first] * mean[:, second])
    return Moments(torch.stack(means, 1), torch.stack(covariances, 1))


def distances(answer: Moments, reference: Moments) -> dict[str, Tensor]:
    """By quantity, ``(G, R)``: mean squares, and the total variation between the normalized attention weights."""
    gap = answer.magnetization - reference.magnetization
    found = {
        "magnetization": gap.square().mean(-1),
        "attention": 0.5 * (attention(answer.magnetization) - attention(reference.magnetization)).abs().sum(-1),
    }
    if answer.covariance is not None and reference.covariance is not None:
        found["covariance"] = (answer.covariance - reference.covariance).square().mean(-1)
    return found


def attention(magnetization: Tensor) -> Tensor:
    """Attention weights."""
    alpha = (magnetization + 1) / 2
    return alpha / alpha.sum(-1, keepdim=True)


def exact_moments(target: BoltzmannTarget) -> Moments:
    """Of the Boltzmann distributions."""
    return Moments(target.mean, target.covariance)


def empirical(spins: Tensor) -> Tensor:
    """Populations ``(G, R, 2**n)`` of samples ``(G, R, M, n)``."""
    n, samples = spins.shape[-1], spins.shape[-2]
    numbers = ((spins < 0).long() << torch.arange(n)).sum(-1)
    q = torch.zeros(*spins.shape[:2], 2**n, dtype=torch.float64)
    return q.scatter_add_(-1, numbers, torch.full(numbers.shape, 1 / samples, dtype=torch.float64))


def sampled(target: BoltzmannTarget, spins: Tensor, shots: int, ideal: Moments | None, estimator: str) -> Distances:
    """Of drawn spins ``(G, R, M, n)`` from the exact moments and, as ``shot``, from the sampler's own limit."""
    answer = moments(target, empirical(spins), estimator)
    found = {("", quantity, str(shots)): value for quantity, value in distances(answer, exact_moments(target)).items()}
    if ideal is not None:
        found |= {("", quantity, f"{shots}{SHOT}"): value for quantity, value in distances(answer, ideal).items()}
    return found


def of_populations(
    target: BoltzmannTarget, batch: IsingModel, q: Tensor, shots: Sequence[int] = (), seed: int = 0
) -> Distances:
    """All distances of a sampler with populations ``q``: in the limit, with ``shots`` samples, and polished (of the
    sizes in ``shots`` only ``POLISHED_SHOTS``)."""
    exact, n = exact_moments(target), target.table.shape[1]
    found: Distances = {}
    seeds = SeedStream(seed)
    drawn = {count: drawn_spins(q, count, n, seeds) for count in shots}
    swept = {count: polish(batch, drawn[count], 1, seeds.next()) for count in shots if count == POLISHED_SHOTS}
    for suffix, populations, samples in (("", q, drawn), (" polished", polish_weights(batch, q), swept)):
        found["any" + suffix, "kl", "infinite"] = _kl(target, populations)
        for estimator in ESTIMATORS:
            ideal = moments(target, populations, estimator)
            for quantity, value in distances(ideal, exact).items():
                found[estimator + suffix, quantity, "infinite"] = value
            for count, spins in samples.items():
                for (_, quantity, size), value in sampled(target, spins, count, ideal, estimator).items():
                    found[estimator + suffix, quantity, size] = value
    return found


def drawn_spins(q: Tensor, shots: int, num_spins: int, seeds: SeedStream) -> Tensor:
    """Samples ``(G, R, shots, n)`` of populations ``q``."""
    generator = torch.Generator().manual_seed(integer_seed(seeds.next()))
    uniforms = torch.rand(*q.shape[:2], shots, dtype=torch.float64, generator=generator)
    rows = [spins_of(draw(weights, uniforms[group]), num_spins) for group, weights in enumerate(q)]
    return torch.stack(rows)


def _kl(target: BoltzmannTarget, q: Tensor) -> Tensor:
    tiny = torch.finfo(q.dtype).tiny
    return (target.log_p.exp() * (target.log_p - (q + tiny).log())).sum(-1)


def summary(found: Iterable[Distances]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """``{estimator: {quantity: {samples: [value, standard error]}}}`` over the units of all ``found``.

    Groups are the units: rows that share a ``J`` are averaged first (``rows_as_units`` makes each a group of its own).
    The part of the error that is shot noise follows as a third number, where it was measured.
    """
    collected: dict[tuple[str, str, str], list[Tensor]] = {}
    for one in found:
        for key, value in one.items():
            collected.setdefault(key, []).append(value.mean(-1))
    result: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (estimator, quantity, samples), parts in collected.items():
        entry = spread(torch.cat(parts), root=quantity in SQUARED)
        by_samples = result.setdefault(estimator, {}).setdefault(quantity, {})
        if samples.endswith(SHOT):  # after the whole error with as many samples
            by_samples[samples.removesuffix(SHOT)].append(entry[0])
        else:
            by_samples[samples] = entry
    return result


def spread(values: Tensor, root: bool) -> list[float]:
    """Mean, or root of the mean, and its standard error over the units (to first order)."""
    mean = values.mean().item()
    error = values.std(correction=1).item() / len(values) ** 0.5
    if root:
        # The error of a square root, 1 / (2 root) times that of its argument.
        mean = mean**0.5
        error = error / (2 * mean) if mean else 0.0
    return [float(f"{mean:.3g}"), float(f"{error:.2g}")]


def rows_as_units(found: Mapping[tuple[str, str, str], Tensor]) -> Distances:
    """Rows ``(G, R)`` as ``(G R, 1)``: each its own unit, for models that share one recorded ``J``."""
    return {key: value.reshape(-1, 1) for key, value in found.items()}
