"""How close a schedule comes to the Boltzmann distribution, at infinite shots."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from qboltz.errors import TooManySpinsError
from qboltz.ising import IsingModel
from qboltz.modelset import ModelSet
from qboltz.schedule import AnnealingSchedule
from qboltz.simulator import Angles, annealing_probabilities
from qboltz.spins import spin_table

#: All configurations of a model are enumerated and simulated, in float64.
MAX_TARGET_SPINS = 16


class BoltzmannTarget:
    """The exact distribution of every model of one batch, and the distance of circuit populations from it."""

    def __init__(self, batch: IsingModel) -> None:
        free = batch.decoupled()
        groups = free.groups
        self.fields, self.couplings = groups.fields, groups.couplings  # (G, R, n), (G, n, n)
        n = batch.num_spins
        if n > MAX_TARGET_SPINS:
            raise TooManySpinsError(
                f"models must have at most {MAX_TARGET_SPINS} spins to be compared with every configuration, got {n}."
            )
        self.table = spin_table(n, dtype=self.fields.dtype, device=self.fields.device)  # (2**n, n)
        first, second = torch.triu_indices(n, n, 1)
        self.pairs = self.table[:, first] * self.table[:, second]  # (2**n, pairs)
        coupling_energy = 0.5 * ((self.table @ self.couplings) * self.table).sum(-1)  # (G, 2**n)
        self.log_p = torch.log_softmax(self.fields @ self.table.mT + coupling_energy.unsqueeze(1), -1)
        self.mean, self.covariance = self.moments(self.log_p.exp())

    def populations(self, schedule: AnnealingSchedule | Angles) -> Tensor:
        """Probabilities of the circuits' configurations, ``(G, R, 2**n)``."""
        return annealing_probabilities(self.fields, self.couplings, schedule)

    def moments(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Magnetizations ``(G, R, n)`` and covariances of the pairs ``(G, R, n (n - 1) / 2)``."""
        n = self.table.shape[1]
        mean = p @ self.table
        first, second = torch.triu_indices(n, n, 1)
        return mean, p @ self.pairs - mean[..., first] * mean[..., second]

    def kl(self, q: Tensor) -> Tensor:
        """Mean over the models of ``KL(p || q)``, in nats: the likelihood the circuit gives to Boltzmann samples."""
        tiny = torch.finfo(q.dtype).tiny
        return (self.log_p.exp() * (self.log_p - (q + tiny).log())).sum(-1).mean()

    def squared_errors(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared error of magnetizations, and of covariances of pairs (0 for a single spin)."""
        mean, covariance = self.moments(q)
        pairs = (covariance - self.covariance).square()
        return (mean - self.mean).square().mean(), pairs.mean() if pairs.numel() else pairs.sum()

    def conditional_mean(self, q: Tensor) -> Tensor:
        """``E_q[tanh(h_k + sum_l J_kl s_l)]``, ``(G, R, n)``."""
        local = self.table @ self.couplings  # (G, 2**n, n)
        rows = [
            torch.einsum("gc,gcn->gn", q[:, row], torch.tanh(self.fields[:, row, None] + local))
            for row in range(q.shape[1])
        ]
        return torch.stack(rows, 1)


@dataclass(frozen=True)
class Fidelity:
    """Root-mean-square errors against the exact distribution, and the divergence from it.

    Attributes:
        magnetization: of ``E_q[s_k]``, the plain average.
        conditional: of ``E_q[tanh(h_k + sum_l J_kl s_l)]``, the conditional estimator.
        covariance: of ``Cov_q(s_k, s_l)`` over pairs.
        attention: total variation between normalized attention weights, conditional estimator, mean over rows.
        kl: ``KL(p || q)``, nats, mean over models.
    """

    magnetization: float
    conditional: float
    covariance: float
    attention: float
    kl: float

    def as_dict(self) -> dict[str, float]:
        """For records."""
        return asdict(self)


def schedule_fidelity(schedule: AnnealingSchedule, models: ModelSet) -> Fidelity:
    """Errors of a schedule on a set of models, every model with equal weight."""
    totals = torch.zeros(5, dtype=torch.float64)
    for batch in models.batches:
        target = BoltzmannTarget(batch)
        q = target.populations(schedule)
        plain, covariance = target.squared_errors(q)
        conditional = target.conditional_mean(q)
        weights, exact = (_attention(m) for m in (conditional, target.mean))
        parts = [
            plain,
            (conditional - target.mean).square().mean(),
            covariance,
            0.5 * (weights - exact).abs().sum(-1).mean(),
            target.kl(q),
        ]
        totals += torch.stack(parts) * batch.fields.shape[:-1].numel() / models.num_models
    plain, conditional, covariance, attention, kl = totals.tolist()
    return Fidelity(plain**0.5, conditional**0.5, covariance**0.5, attention, kl)


def _attention(magnetization: Tensor) -> Tensor:
    alpha = (magnetization + 1) / 2
    return alpha / alpha.sum(-1, keepdim=True)
