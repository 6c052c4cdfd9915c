"""Samples of Markov chains: the moments of any samples, and how far the chains can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qboltz.ensemble import Estimator, SampledEnsemble
from qboltz.ising import IsingModel


@dataclass(frozen=True, eq=False)
class ChainDiagnostics:
    r"""Convergence of the spins, each ``(..., n)`` over the batch of the model.

    Where nothing can be judged (a spin that is not visible or was the same in all samples of all chains) the values are
    neutral: 1, the number of samples, ``thin``.

    Attributes:
        split_rhat: :math:`\hat R = \sqrt{\widehat{\mathrm{var}}^+ / W}` of half chains of length :math:`N'`, with
            :math:`W` the mean variance within them and :math:`\widehat{\mathrm{var}}^+ = \frac{N' - 1}{N'} W +
            \mathrm{Var}(\text{means})`. Above about 1.1 the chains have not mixed, or are too short to tell (half a
            chain must last several autocorrelation times).
        effective_samples: independent samples that would give the same error of a plain magnetization.
        autocorrelation_time: sweeps per effective sample.
        exchange_rates: ``(K - 1,)`` share of accepted exchanges between neighboring temperatures; empty without
            tempering.

    Source: Gelman et al., Bayesian Data Analysis (3rd ed.) section 11.4; Vehtari et al., Bayesian Analysis 16 (2021)
    667.
    """

    split_rhat: Tensor
    effective_samples: Tensor
    autocorrelation_time: Tensor
    exchange_rates: Tensor


class ChainEnsemble(SampledEnsemble):
    """A ``SampledEnsemble`` whose samples are ``num_chains`` independent chains of equal length, one after the other.

    Samples of one chain are correlated: the factor ``M / (M - 1)`` of the gradients, right for independent samples,
    leaves a relative bias of about ``(tau - 1) / M`` (``tau``: samples per effective sample).

    Args:
        model, spins, estimator: as in ``SampledEnsemble``; ``spins`` is ``(G, R, chains * samples_per_chain, n)``.
        num_chains: ``C``.
        thin: sweeps between two recorded samples.
        exchange_rates: of a tempered run, ``(K - 1,)``.
    """

    def __init__(
        self,
        model: IsingModel,
        spins: Tensor,
        num_chains: int,
        estimator: Estimator = "conditional",
        thin: int = 1,
        exchange_rates: Tensor | None = None,
    ) -> None:
        super().__init__(model, spins, estimator=estimator)
        self.num_chains = num_chains
        self.thin = thin
        self.exchange_rates = torch.empty(0) if exchange_rates is None else exchange_rates

    @property
    def samples_per_chain(self) -> int:
        """``N``."""
        return self.num_samples // self.num_chains

    def standard_error(self) -> Tensor:
        r"""Standard error of ``magnetization()`` from the spread of the chain means, ``sqrt(Var(means) / C)``.

        Chains are independent, so this holds whatever the correlation within a chain. One chain has no spread: NaN.
        """
        groups = self.model.groups
        error = torch.zeros_like(groups.fields)
        for piece in self._pieces():
            means = self._by_chain(piece.values()).mean(-2)  # (g, r, C, n)
            error[piece.where] = (means.var(-2, correction=1) / self.num_chains).sqrt()
        return groups.unfold(error)

    def diagnostics(self) -> ChainDiagnostics:
        """Split R-hat, effective sample size and autocorrelation time of every spin.

        Raises:
            ValueError: chains have fewer than 4 samples, so that half a chain has no variance.
        """
        if self.samples_per_chain < 4:
            raise ValueError(
                f"samples_per_chain must be at least 4 for diagnostics(), got {self.samples_per_chain}. "
                "standard_error() needs only several chains."
            )
        groups = self.model.groups
        rhat = torch.empty_like(groups.fields)
        effective = torch.empty_like(groups.fields)
        for piece in self._pieces():
            chains = self._by_chain(piece.spins)  # (g, r, C, N, n)
            rhat[piece.where] = split_rhat(chains)
            effective[piece.where] = effective_samples(chains)
        return ChainDiagnostics(
            groups.unfold(rhat),
            groups.unfold(effective),
            groups.unfold(self.thin * self.num_samples / effective),
            self.exchange_rates,
        )

    def _by_chain(self, values: Tensor) -> Tensor:
        """``(..., M, n)`` to ``(..., C, N, n)``."""
        return values.view(*values.shape[:-2], self.num_chains, self.samples_per_chain, values.shape[-1])


def split_rhat(chains: Tensor) -> Tensor:
    """``(..., C, N, n)`` to ``(..., n)``; 1 where all values are equal, infinite where only the chains differ."""
    half = chains.shape[-2] // 2
    halves = torch.cat([chains[..., :half, :], chains[..., -half:, :]], -3)
    within = halves.var(-2, correction=1).mean(-2)
    between = halves.mean(-2).var(-2, correction=1)
    ratio = (half - 1) / half + between / within
    return torch.where(between + within > 0, ratio.sqrt(), 1.0)


def effective_samples(chains: Tensor) -> Tensor:
    r"""``(..., C, N, n)`` to ``(..., n)``: :math:`C N / \tau`, :math:`\tau = -1 + 2 \sum_k P_k`.

    ``P_k = rho_{2k} + rho_{2k+1}`` are summed while positive and made monotone (Geyer's initial sequence). The
    autocorrelations ``rho_t`` are taken about the mean of *all* chains and divided by ``N`` at every lag: many short
    chains then give no bias, and chains that are stuck count as one sample each. For long chains this is the estimate
    of Vehtari et al. (2021), with their upper limit ``C N log10(C N)``.
    """
    num_chains, length = chains.shape[-3:-1]
    centered = chains - chains.mean((-3, -2), keepdim=True)
    spectrum = torch.fft.rfft(centered, n=2 * length, dim=-2)
    covariance = torch.fft.irfft(spectrum.abs().square(), n=2 * length, dim=-2)[..., :length, :].mean(-3)
    variance = covariance[..., :1, :]
    correlation = torch.where(variance > 0, covariance / variance, 0.0)
    if length % 2:
        correlation = torch.cat([correlation, torch.zeros_like(variance)], -2)
    pairs = correlation.unflatten(-2, (-1, 2)).sum(-2)  # (..., pairs, n)
    positive = (pairs > 0).cumprod(-2)
    tau = 2 * (pairs.cummin(-2).values * positive).sum(-2) - 1
    samples = num_chains * length
    tau = tau.clamp_min(1 / math.log10(max(samples, 10)))
    return torch.where(variance.squeeze(-2) > 0, samples / tau, float(samples))
