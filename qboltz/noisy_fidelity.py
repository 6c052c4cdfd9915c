"""How close circuits come to the Boltzmann distribution under noise, at infinite shots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qboltz.ensemble import ESTIMATORS, Estimator
from qboltz.errors import TooManySpinsError, check_integer, unknown_name
from qboltz.fidelity import BoltzmannTarget
from qboltz.modelset import ModelSet
from qboltz.noise import AnnealNoise, ErrorPaths, noisy_populations
from qboltz.readout import ReadoutErrors
from qboltz.schedule import AnnealingSchedule
from qboltz.simulator import Angles

#: Largest models that are simulated with all their error paths, hundreds of times.
MAX_NOISY_SPINS = 10
#: Independent parts of the paths: a square is a product of two errors, and so is the product of means in each of them.
PARTS = 4


@dataclass(frozen=True)
class NoisyFidelity:
    """Root-mean-square errors of one schedule under noise, at infinite shots, against the exact distributions.

    Attributes:
        magnetization: of the magnetizations, with the estimator that was asked for.
        covariance: of the covariances of pairs, with the estimator's own formula: what gradients are made of.
    """

    magnetization: float
    covariance: float

    @property
    def error(self) -> float:
        """``sqrt(magnetization^2 + covariance^2)``: what is fitted and compared."""
        return float(np.hypot(self.magnetization, self.covariance))


class NoisyTarget:
    """The exact distributions of some models, and the distance from them of circuits under noise.

    Args:
        models: one batch.
        noise: of the device, for as many spins.
        coupled: which layers have couplings.
        estimator: of the moments.
        paths: random error paths per model, a multiple of 4.
        seed: of the paths.
        correct_readout: whether the readout errors will be corrected, and are left out here.
    """

    def __init__(
        self,
        models: ModelSet,
        noise: AnnealNoise,
        coupled: Sequence[bool],
        *,
        estimator: Estimator = "conditional",
        paths: int = 16,
        seed: int = 0,
        correct_readout: bool = False,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(unknown_name("estimator", estimator, ESTIMATORS))
        if check_integer("paths", paths) % PARTS:
            raise ValueError(f"paths must be a multiple of {PARTS}, got {paths}.")
        (batch,) = models.batches
        n = batch.num_spins
        if n > MAX_NOISY_SPINS:
            raise TooManySpinsError(f"models must have at most {MAX_NOISY_SPINS} spins under noise, got {n}.")
        if noise.num_spins != n:
            raise ValueError(f"noise must be of {n} spins, as the models, got {noise.num_spins}.")
        self.target = BoltzmannTarget(batch)
        self.estimator = estimator
        groups, rows = self.target.fields.shape[:2]
        self.fields = self.target.fields.flatten(0, 1)
        self.couplings = self.target.couplings.repeat_interleave(rows, 0)
        self.paths: ErrorPaths = noise.paths(coupled, groups * rows, paths, seed)
        self.readout: ReadoutErrors | None = None if correct_readout else noise.readout(coupled)
        table = self.target.table
        self.mean = self.target.mean.flatten(0, 1)
        self.first, self.second = torch.triu_indices(n, n, 1)
        self.covariance = self.target.covariance.flatten(0, 1)
        self.given_others = torch.tanh(self.fields.unsqueeze(1) + table @ self.couplings)  # (N, 2**n, n)

    def distances(self, angles: Angles) -> tuple[Tensor, Tensor]:
        """Mean squared errors of magnetizations and of covariances, free of the bias of finitely many paths."""
        q = noisy_populations(self.fields, self.couplings, angles, self.paths, self.readout, PARTS)  # (4, N, 2**n)
        return self.squares(q)

    def clean_distances(self, angles: Angles) -> tuple[Tensor, Tensor]:
        """The same circuits without noise."""
        q = self.target.populations(angles).flatten(0, 1)
        return self.squares(q.expand(PARTS, -1, -1))

    def squares(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared errors of populations ``(4, N, 2**n)``: those of the same circuits in four independent parts."""
        table, first, second = self.target.table, self.first, self.second
        plain = q @ table  # (4, N, n)
        if self.estimator == "plain":
            mean = plain
            products = [(q @ self.target.pairs, plain[..., first], plain[..., second])]
        else:
            mean = torch.einsum("apc,pck->apk", q, self.given_others)
            both = torch.einsum("apc,pck,cl->apkl", q, self.given_others, table)  # E[t_k s_l]
            products = [(both[..., j, k], mean[..., j], plain[..., k]) for j, k in ((first, second), (second, first))]
        squares = [_square(_covariance(*product) - self.covariance) for product in products]
        return _square(0.5 * (mean[::2] + mean[1::2]) - self.mean), torch.stack(squares).mean()

    def fidelity(self, schedule: AnnealingSchedule, *, noisy: bool = True) -> NoisyFidelity:
        """Errors of a schedule."""
        distances = self.distances if noisy else self.clean_distances
        with torch.no_grad():
            return NoisyFidelity(*(max(float(square), 0.0) ** 0.5 for square in distances(Angles.of(schedule))))


def _covariance(both: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Two independent estimates of ``E[x y] - E[x] E[y]`` from four parts, the means from different ones."""
    return 0.5 * (both[::2] + both[1::2] - first[::2] * second[1::2] - first[1::2] * second[::2])


def _square(errors: Tensor) -> Tensor:
    """Mean over models of the product of two independent estimates of the same error; 0 if there is none."""
    products = errors[0] * errors[1]
    return products.mean() if products.numel() else products.sum()
