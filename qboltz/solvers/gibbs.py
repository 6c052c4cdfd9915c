"""Gibbs sampling as a solver: what a user without a quantum computer would run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from qboltz.ensemble import ESTIMATORS, Estimator
from qboltz.errors import unknown_name
from qboltz.gibbs import Scan, row_chunks
from qboltz.ising import IsingModel
from qboltz.seeds import SeedStream
from qboltz.solvers.chains import ChainEnsemble


class GibbsSolver:
    r"""Markov chains that converge to ``exp(-E)/Z``: sequential Gibbs sweeps from uniformly random spins.

    .. math:: p(s_k = +1 \mid s) = \sigma\big(2 (h_k + \textstyle\sum_l J_{kl} s_l)\big), \qquad k = 1, 2, \dots, n

    ``chains * samples_per_chain`` samples of every model; all models and chains advance together. Ask the ensemble's
    ``diagnostics()`` whether the chains have mixed. Where couplings split the configurations into modes, plain chains
    stay in the mode they started in; parallel tempering (``tempering=K``) lets them cross at high temperature, at ``K``
    times the cost.

    Equal seeds give equal samples, consecutive calls different ones, and a solver that has loaded the ``state_dict`` of
    another continues exactly as that one would.

    Args:
        chains: independent chains of each model.
        samples_per_chain: samples recorded from each chain.
        warmup: sweeps before the first recorded one.
        thin: sweeps per recorded sample.
        tempering: replicas per chain, at inverse temperatures from ``beta_min`` to 1 in geometric progression, which
            exchange configurations after each sweep; ``None`` runs at 1 alone.
        beta_min: inverse temperature of the hottest replica, between 0 and 1.
        estimator: ``"conditional"`` or ``"plain"``, see ``SampledEnsemble``.
        seed: of all samples, a non-negative integer; ``None`` draws one.

    Attributes:
        seeds: the stream of seeds, one per call of ``solve``.

    Raises:
        ValueError: an argument is out of its range.

    Source: Geman and Geman 1984; Hukushima and Nemoto 1996.
    """

    def __init__(
        self,
        chains: int = 32,
        samples_per_chain: int = 8,
        warmup: int = 50,
        thin: int = 1,
        tempering: int | None = None,
        beta_min: float = 0.2,
        estimator: Estimator = "conditional",
        seed: int | None = None,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(unknown_name("estimator", estimator, ESTIMATORS))
        if not 0 < beta_min < 1:
            raise ValueError(f"beta_min must be between 0 and 1, got {beta_min!r}.")
        self.chains = _integer("chains", chains, 1)
        self.samples_per_chain = _integer("samples_per_chain", samples_per_chain, 1)
        self.warmup = _integer("warmup", warmup, 0)
        self.thin = _integer("thin", thin, 1)
        self.tempering = None if tempering is None else _integer("tempering", tempering, 2)
        self.beta_min = float(beta_min)
        self.estimator: Estimator = estimator
        self.seeds = SeedStream(seed)

    def solve(self, model: IsingModel) -> ChainEnsemble:
        """Run the chains of every model of the batch."""
        with torch.no_grad():
            spins, exchange_rates = sample_chains(
                model,
                self.seeds.next(),
                chains=self.chains,
                samples_per_chain=self.samples_per_chain,
                warmup=self.warmup,
                thin=self.thin,
                betas=self.betas,
            )
        return ChainEnsemble(model, spins, self.chains, self.estimator, self.thin, exchange_rates)

    @property
    def betas(self) -> Tensor:
        """Inverse temperatures of the replicas of a chain, ascending, the last one 1; float64."""
        if self.tempering is None:
            return torch.ones(1, dtype=torch.float64)
        exponents = torch.linspace(1, 0, self.tempering, dtype=torch.float64)
        return self.beta_min**exponents

    def state_dict(self) -> dict[str, Any]:
        """The position in the stream of seeds."""
        return {"seeds": self.seeds.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        self.seeds.load_state_dict(state["seeds"])

    def __repr__(self) -> str:
        return (
            f"GibbsSolver(chains={self.chains}, samples_per_chain={self.samples_per_chain}, warmup={self.warmup}, "
            f"thin={self.thin}, tempering={self.tempering}, beta_min={self.beta_min:g}, estimator={self.estimator!r})"
        )


def sample_chains(
    model: IsingModel,
    seed: np.random.SeedSequence,
    *,
    chains: int,
    samples_per_chain: int,
    warmup: int,
    thin: int,
    betas: Tensor,
) -> tuple[Tensor, Tensor]:
    """Independent Markov chains of every model, each from uniformly random spins.

    A chain is a ladder of ``K`` replicas at the inverse temperatures ``betas`` that offer their configurations to their
    neighbors after each sweep (even and odd pairs in turn); what stands at the last one, 1, is recorded.

    Args:
        model: the models.
        seed: of everything drawn here.
        chains: ``C``.
        samples_per_chain: ``N`` recorded samples, ``thin`` sweeps apart, after ``warmup`` sweeps.
        warmup: sweeps before the recording.
        thin: sweeps per recorded sample.
        betas: ``(K,)`` ascending, the last one 1; ``K = 1`` is plain Gibbs sampling.

    Returns:
        Spins ``(G, R, C N, n)`` int8, the samples of one chain side by side, and ``(K - 1,)`` the share of accepted
        exchanges between neighboring temperatures (NaN where none was offered).
    """
    groups = model.groups
    num_groups, num_rows, n = groups.fields.shape
    device = groups.fields.device
    replicas = len(betas)
    width = chains * replicas
    total = warmup + thin * samples_per_chain
    bits = np.random.SFC64(seed)
    spins = torch.empty(num_groups, num_rows, chains, samples_per_chain, n, dtype=torch.int8, device=device)
    accepted = torch.zeros(replicas - 1, dtype=torch.float64, device=device)
    per_sweep = (n + (replicas > 1)) * width
    for where in row_chunks(num_groups, num_rows, n * width, per_sweep * (total + 1)):
        visible = None if groups.visible is None else groups.visible[where]
        scan = Scan(groups.fields[where], groups.couplings[where[0]], width, visible, betas)
        uniforms = scan.uniforms(total + 1, bits)
        scan.start((next(uniforms)[:, :, :n] - 0.5).mT)
        for number, drawn in enumerate(uniforms, start=1):
            scan.step(drawn)
            if replicas > 1:
                accepted += scan.exchange(drawn[:, :, n], number % 2)
            index, rest = divmod(number - warmup, thin)
            if index > 0 and rest == 0:
                cold = scan.spins().unflatten(-1, (chains, replicas))[..., -1]  # (g, n, r, C)
                spins[where][:, :, :, index - 1].copy_(cold.permute(0, 2, 3, 1))
    offers = torch.tensor([(total + pair % 2) // 2 for pair in range(replicas - 1)], device=device)
    rates = accepted / (offers * num_groups * num_rows * chains)
    return spins.flatten(2, 3), rates


def _integer(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
    return value
