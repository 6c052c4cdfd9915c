r"""At which inverse temperatures a set of samples is: those of the fields and of the couplings, with intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor

from qboltz.ensemble import SampledEnsemble
from qboltz.errors import ConvergenceError, check_integer, unknown_name

Cluster = Literal["sample", "model"]
CLUSTERS: tuple[Cluster, ...] = ("sample", "model")

#: Newton steps; a problem with a finite answer takes about six.
MAX_STEPS = 60
#: Newton decrement per conditional at which the answer is exact in double precision.
TOLERANCE = 1e-26
#: Two directions closer than this (radians) count as one: rounding of the local fields.
SAME_DIRECTION = 1e-9


@dataclass(frozen=True)
class Temperatures:
    """Inverse temperatures at which samples look like ``exp(beta_h sum h s + beta_J sum J s s)``; both 1 is Boltzmann.

    A temperature on which the samples have no bearing (all fields, or all couplings, are 0) is NaN, with an infinite
    standard error and interval.

    Attributes:
        beta_fields: of the fields.
        beta_couplings: of the couplings.
        fields_error: its standard error.
        couplings_error: likewise.
        fields_interval: at level ``confidence``, from the normal distribution.
        couplings_interval: likewise.
        confidence: level of the intervals.
        num_samples: configurations used, over all models (of a table with weights: its length times the models).
        num_models: models with a visible spin.
    """

    beta_fields: float
    beta_couplings: float
    fields_error: float
    couplings_error: float
    fields_interval: tuple[float, float]
    couplings_interval: tuple[float, float]
    confidence: float
    num_samples: int
    num_models: int

    def as_dict(self) -> dict[str, Any]:
        """For records."""
        return asdict(self)


def effective_temperatures(
    ensemble: SampledEnsemble, confidence: float = 0.95, *, cluster: Cluster = "sample", dependent: int = 1
) -> Temperatures:
    r"""Maximum pseudo-likelihood over all samples of all models: the two numbers that maximize

    .. math::
        \sum_{\text{samples}} \sum_k \log \sigma\big(2 s_k (\beta_h h_k + \beta_J \textstyle\sum_l J_{kl} s_l)\big),

    a logistic regression of every spin on its field and on its local field; convex, solved by Newton's method. It is
    consistent, needs no partition function, and takes samples as they are, whatever the estimator of the ensemble.

    The ``n`` conditionals of one configuration depend on each other, so that the inverse Hessian is no covariance of
    the estimate. The sandwich ``H^-1 V H^-1`` is (Godambe), with ``V`` the covariance of whole samples' scores:

    * ``cluster="sample"``: around the mean of their model. The error of shots, for these very models.
    * ``cluster="model"``: whole models are the draws. It also covers what other models of the same kind would have
      given, which differs where samples are not Boltzmann at any temperature; it wants some tens of models.

    Args:
        ensemble: drawn samples, or configurations with weights. Weights are probabilities: nothing is drawn, and the
            errors with ``cluster="sample"`` are 0.
        confidence: level of the intervals.
        cluster: ``"sample"`` or ``"model"``.
        dependent: how many consecutive samples of a model depend on each other (samples per chain of Gibbs chains);
            each such run is one draw. It must divide the number of samples.

    Raises:
        TypeError: ``ensemble`` is no ``SampledEnsemble``.
        ValueError: an argument is out of its range; there is no sample or one draw; or the samples fix no temperature:
            saturated, in that some temperature predicts every spin, or with local fields proportional to the fields.
        ConvergenceError: Newton's method did not end (never seen).

    Source: Besag, The Statistician 24 (1975) 179; Godambe, Ann. Math. Stat. 31 (1960) 1208.
    """
    if not isinstance(ensemble, SampledEnsemble):
        raise TypeError(f"ensemble must be a SampledEnsemble, which has samples, got {type(ensemble).__name__}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}.")
    if cluster not in CLUSTERS:
        raise ValueError(unknown_name("cluster", cluster, CLUSTERS))
    regression = _Regression(ensemble)
    beta = regression.maximize()
    errors = regression.errors(beta, cluster, check_integer("dependent", dependent))
    quantile = NormalDist().inv_cdf(0.5 + confidence / 2)
    estimates: list[tuple[float, float, tuple[float, float]]] = [(math.nan, math.inf, (-math.inf, math.inf))] * 2
    for axis, value, error in zip(regression.axes, beta.tolist(), errors.tolist(), strict=True):
        estimates[axis] = value, error, (value - quantile * error, value + quantile * error)
    (beta_fields, fields_error, fields_interval), (beta_couplings, couplings_error, couplings_interval) = estimates
    return Temperatures(
        beta_fields,
        beta_couplings,
        fields_error,
        couplings_error,
        fields_interval,
        couplings_interval,
        confidence,
        regression.num_samples,
        regression.num_models,
    )


class _Regression:
    """``s_k`` on ``x_k = (h_k, sum_l J_kl s_l)`` for all spins of all samples ``(G, R, M, n)``, float64."""

    def __init__(self, ensemble: SampledEnsemble) -> None:
        groups = ensemble.model.groups
        shape = groups.num_groups, groups.num_rows, ensemble.num_samples, groups.num_spins
        spins = ensemble.spins.double().expand(shape)
        fields = groups.fields.double().unsqueeze(-2).expand(shape)
        seen = torch.ones_like(groups.fields[..., 0], dtype=torch.bool)
        if groups.visible is not None:
            visible = groups.visible.unsqueeze(-2)
            spins, fields = spins * visible, fields * visible
            seen = groups.visible.any(-1)
        local = (spins.flatten(1, 2) @ groups.couplings.double()).view(shape)
        self.num_models = int(seen.sum())
        self.num_samples = self.num_models * ensemble.num_samples
        if self.num_samples == 0:
            raise ValueError("ensemble must have at least one sample of a model with a visible spin, got none.")
        self.weights = None if ensemble.weights is None else ensemble.weights.double().unsqueeze(-1)
        # An invisible spin is 0 here, and so is all it would add to a score.
        features = [fields * spins.abs(), local * spins.abs()]
        self.axes = [axis for axis in (0, 1) if bool(features[axis].any())]
        if not self.axes:
            raise ValueError("ensemble must have a field or a coupling that is not 0: without, samples have no scale.")
        self.scales = [float(features[axis].abs().max()) for axis in self.axes]
        self.spins = spins
        self.x = torch.stack([features[axis] for axis in self.axes]) / self._scaled(-1, 1, 1, 1, 1)  # (a, G, R, M, n)
        self._check_scale_is_fixed()

    def _scaled(self, *shape: int) -> Tensor:
        return torch.tensor(self.scales, dtype=torch.float64).view(shape).to(self.spins.device)

    def _check_scale_is_fixed(self) -> None:
        """The maximum exists if and only if the vectors ``s_k x_k`` lie in no half-plane."""
        z = self.x * self.spins
        if self.weights is not None:
            z = z * (self.weights > 0)
        z = z.flatten(1)[:, z.flatten(1).abs().amax(0) > 0]
        if len(z) == 1:
            open_side = bool((z > 0).all()) or bool((z < 0).all())
        else:
            angles = torch.atan2(z[1], z[0]).sort().values
            gaps = torch.diff(angles, append=angles[:1] + 2 * math.pi)
            open_side = float(gaps.max()) >= math.pi - SAME_DIRECTION
        if not open_side:
            return
        names = [("fields", "couplings")[axis] for axis in self.axes]
        raise ValueError(
            f"ensemble must fix the temperature of its {' and '.join(names)}, and its {self.num_samples} samples of "
            f"{self.num_models} models do not: either some temperature predicts every spin (saturated: only a lower "
            "bound exists), or the local fields are everywhere the same multiple of the fields. Take weaker models, "
            "models that differ, or more samples."
        )

    def maximize(self) -> Tensor:
        """The estimate, ``(a,)`` for the ``a`` temperatures that the samples bear on."""
        beta = torch.ones(len(self.axes), dtype=torch.float64, device=self.spins.device) * self._scaled(-1)
        loss = self._loss(beta)
        for _ in range(MAX_STEPS):
            score, hessian = self._derivatives(beta)
            step = torch.linalg.solve(hessian, score)
            decrement = float(score @ step)
            if decrement <= TOLERANCE * self.num_models * self.spins.shape[-1]:
                return beta / self._scaled(-1)
            length = 1.0
            while (trial := self._loss(beta + length * step)) > loss - 0.25 * length * decrement and length > 1e-6:
                if decrement <= 1e-10 * abs(loss):  # the loss has no digits left to go by; Newton has
                    break
                length /= 2
            beta, loss = beta + length * step, trial
        raise ConvergenceError(
            f"No temperature after {MAX_STEPS} Newton steps for {self.num_samples} samples (last decrement "
            f"{decrement:.2g}): nearly saturated samples. Take weaker models or more samples."
        )

    def errors(self, beta: Tensor, cluster: Cluster, dependent: int) -> Tensor:
        """Standard errors of the estimate, from the sandwich."""
        scores = self._scores(beta * self._scaled(-1))  # (a, G, R, M, n)
        _, hessian = self._derivatives(beta * self._scaled(-1))
        scores = scores.sum(-1).movedim(0, -1)  # (G, R, M, a)
        if cluster == "model":
            draws = scores.sum(-2).flatten(0, 1)
            if self.num_models < 2:
                raise ValueError("cluster must be 'sample' for a single model, got 'model'.")
            variance = draws.mT @ draws * (self.num_models / (self.num_models - 1))  # their sum is zero
        elif self.weights is not None:
            return torch.zeros_like(beta)
        else:
            samples = scores.shape[-2]
            if samples % dependent or samples == dependent:
                raise ValueError(
                    f"dependent must divide the {samples} samples of a model into at least two draws, got {dependent}. "
                    "With one draw of each of many models use cluster='model'."
                )
            draws = scores.unflatten(-2, (-1, dependent)).sum(-2)
            count = draws.shape[-2]
            draws = (draws - draws.mean(-2, keepdim=True)).flatten(0, 2)
            variance = draws.mT @ draws * (count / (count - 1))
        half = torch.linalg.solve(hessian, variance)
        covariance: Tensor = torch.linalg.solve(hessian, half.mT)
        return covariance.diagonal().sqrt() / self._scaled(-1)

    def _predicted(self, beta: Tensor) -> Tensor:
        return (beta.view(-1, 1, 1, 1, 1) * self.x).sum(0)

    def _loss(self, beta: Tensor) -> float:
        margin = torch.nn.functional.softplus(-2 * self._predicted(beta) * self.spins)
        return float(self._total(margin * self.spins.abs()))

    def _scores(self, beta: Tensor) -> Tensor:
        """Derivatives of every conditional's log-likelihood, ``(s_k - t_k) x_k``, with the weight of their sample."""
        residual = self.spins - torch.tanh(self._predicted(beta))
        return self.x * (residual if self.weights is None else residual * self.weights)

    def _derivatives(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Score ``(a,)`` and minus the second derivative ``(a, a)``."""
        score = self._scores(beta).flatten(1).sum(-1)
        curvature = 1 - torch.tanh(self._predicted(beta)).square()
        if self.weights is not None:
            curvature = curvature * self.weights
        bent = (self.x * curvature).flatten(1)
        return score, bent @ self.x.flatten(1).mT

    def _total(self, values: Tensor) -> Tensor:
        return (values if self.weights is None else values * self.weights).sum()
