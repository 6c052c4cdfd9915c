"""The layer by D-Wave's PyTorch plugin: its ``Ising`` layer on classical dimod samplers; no circuit is run.

Like this package it takes spins for samples of ``exp(-E)/Z`` and gives their covariances as the gradient; unlike it,
each row is a call of the sampler. dimod's energies have the other sign.
"""

from __future__ import annotations

from typing import Any

import dimod
import torch
from dwave.plugins.torch.nn.modules.ising import IdentityStatistic, Ising
from dwave.samplers import SimulatedAnnealingSampler, TreeDecompositionSampler
from peers_ours import AER, GIBBS, SWEEPS
from peers_problem import Method, Problem, Step, differentiate

from qboltz import AnnealingSchedule


class CountingSampler(dimod.Sampler):  # type: ignore[misc]
    """A sampler with a new seed for each call and a count of the calls."""

    parameters = None
    properties = None

    def __init__(self, sampler: Any, seed: int) -> None:
        self.sampler = sampler
        self.parameters, self.properties = sampler.parameters, sampler.properties
        self.seed = seed
        self.calls = 0

    def sample(self, bqm: Any, **parameters: Any) -> Any:
        self.calls += 1
        self.seed += 1
        return self.sampler.sample(bqm, seed=self.seed, **parameters)


class Layer:
    """``dwave.plugins.torch``'s layer of all spins and pairs with the spins themselves as its output."""

    def __init__(self, num_spins: int, sampler: CountingSampler, parameters: dict[str, Any]) -> None:
        pairs = list(zip(*torch.triu_indices(num_spins, num_spins, 1).tolist(), strict=True))
        self.sampler = sampler
        self.layer = Ising(range(num_spins), pairs, sampler, parameters, 1.0, IdentityStatistic(num_spins))

    def step(self, problem: Problem) -> Step:
        return differentiate(problem, lambda h, J: self.layer(-h, -J.expand(len(h), -1)))

    def calls(self) -> int:
        return self.sampler.calls


def methods(num_spins: int, schedule: AnnealingSchedule, shots: int, seed: int) -> dict[str, Method]:
    """Gibbs chains at a fixed temperature, and independent exact samples; the schedule is not used."""
    rule = "covariance rule on the same samples; no circuit"
    chains = {
        "num_reads": shots,
        "beta_schedule_type": "custom",
        "beta_schedule": [1.0],
        "num_sweeps_per_beta": SWEEPS,
        "proposal_acceptance_criteria": "Gibbs",
    }
    kinds: dict[str, tuple[Any, dict[str, Any], str]] = {
        "D-Wave plugin, `SimulatedAnnealingSampler` at beta 1": (
            SimulatedAnnealingSampler(),
            chains,
            f"ends of Gibbs chains, {rule}",
        ),
        "D-Wave plugin, `TreeDecompositionSampler`": (
            TreeDecompositionSampler(),
            {"num_reads": shots, "beta": 1.0},
            f"exact samples of the Boltzmann distribution, {rule}",
        ),
    }
    found = {}
    for name, (sampler, parameters, computes) in kinds.items():
        layer = Layer(num_spins, CountingSampler(sampler, seed), parameters)
        found[name] = Method(layer.step, computes, layer.calls, unit="models", beside=(GIBBS, AER))
    return found
