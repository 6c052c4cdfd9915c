"""Exact magnetizations of single models by other packages' exact inference, beside ``ExactSolver``.

Each peer is a function ``inference(name) -> (fields (n,), couplings (n, n)) -> m (n,)``, which imports what it needs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peers_problem import Problem, coupling_matrix

from qboltz import ExactSolver, IsingModel

Array = NDArray[np.float64]
Inference = Callable[[Array, Array], Array]

OURS = "`ExactSolver`"


def ours() -> Inference:
    solver = ExactSolver()

    def infer(h: Array, J: Array) -> Array:
        model = IsingModel(torch.from_numpy(h), torch.from_numpy(J))
        return np.asarray(solver.solve(model).magnetization().numpy())

    return infer


def _quadratic_model(h: Array, J: Array) -> Any:
    """dimod's energies have the other sign."""
    import dimod

    first, second = np.triu_indices(len(h), 1)
    pairs = zip(first.tolist(), second.tolist(), (-J[first, second]).tolist(), strict=True)
    return dimod.BinaryQuadraticModel(dict(enumerate((-h).tolist())), {(i, j): x for i, j, x in pairs}, "SPIN")


def dimod_enumeration() -> Inference:
    """Energies of all configurations by ``dimod.ExactSolver``, their Boltzmann average by NumPy."""
    import dimod

    solver = dimod.ExactSolver()

    def infer(h: Array, J: Array) -> Array:
        found = solver.sample(_quadratic_model(h, J))
        weights = np.exp(found.record.energy.min() - found.record.energy)
        m = np.empty(len(h))
        m[list(found.variables)] = weights @ found.record.sample / weights.sum()
        return m

    return infer


def tree_decomposition() -> Inference:
    """Marginals by ``dwave.samplers.TreeDecompositionSampler``; a complete graph is one clique."""
    from dwave.samplers import TreeDecompositionSampler

    sampler = TreeDecompositionSampler()

    def infer(h: Array, J: Array) -> Array:
        found = sampler.sample(_quadratic_model(h, J), num_reads=1, beta=1.0, marginals=True)
        return np.array([2 * found.info["variable_marginals"][spin] - 1 for spin in range(len(h))])

    return infer


def _markov_network(h: Array, J: Array) -> Any:
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    names, spins = _names(len(h)), np.array([1.0, -1.0])
    first, second = (index.tolist() for index in np.triu_indices(len(h), 1))
    network = DiscreteMarkovNetwork()
    network.add_nodes_from(names)
    network.add_edges_from([(names[i], names[j]) for i, j in zip(first, second, strict=True)])
    network.add_factors(*(DiscreteFactor([name], [2], np.exp(x * spins)) for name, x in zip(names, h, strict=True)))
    for i, j in zip(first, second, strict=True):
        values = np.exp(J[i, j] * np.outer(spins, spins))
        network.add_factors(DiscreteFactor([names[i], names[j]], [2, 2], values))
    return network


def _names(num_spins: int) -> list[str]:
    return [f"s{spin}" for spin in range(num_spins)]


def _queries(inference: Any, num_spins: int) -> Array:
    """One query for each spin; a query of a Markov network need not be normalized."""
    values = [inference.query([name], show_progress=False).values for name in _names(num_spins)]
    return np.array([(up - down) / (up + down) for up, down in values])


def variable_elimination() -> Inference:
    from pgmpy.inference import VariableElimination

    return lambda h, J: _queries(VariableElimination(_markov_network(h, J)), len(h))


def belief_propagation() -> Inference:
    """On the junction tree, calibrated once for each model."""
    from pgmpy.inference import BeliefPropagation

    def infer(h: Array, J: Array) -> Array:
        inference = BeliefPropagation(_markov_network(h, J))
        inference.calibrate()
        return _queries(inference, len(h))

    return infer


#: Peers: distributions that they need, and their ways.
PEERS: dict[str, tuple[tuple[str, ...], dict[str, Callable[[], Inference]]]] = {
    "dimod": (("dimod",), {"dimod, `ExactSolver`": dimod_enumeration}),
    "dwave-samplers": (("dwave-samplers",), {"dwave-samplers, `TreeDecompositionSampler`": tree_decomposition}),
    "pgmpy": (
        ("pgmpy",),
        {
            "pgmpy, `VariableElimination`": variable_elimination,
            "pgmpy, `BeliefPropagation`": belief_propagation,
        },
    ),
}


def measure(num_spins: int, rows: int, ways: dict[str, Callable[[], Inference]], repeats: int, seed: int) -> Any:
    """Seconds per model of all ways in turn, one model at a time, and the largest difference from ours.

    Seconds of the processor; double precision; ``batched_seconds`` is ours for all rows in one call, per model.
    """
    problem = Problem.random(num_spins, rows, seed, torch.float64)
    fields, couplings = problem.fields.numpy(), coupling_matrix(problem.pairs, num_spins).numpy()
    infer = {OURS: ours()} | {name: way() for name, way in ways.items()}
    expected = infer[OURS](fields, couplings)
    found = {name: np.array([way(h, couplings) for h in fields]) for name, way in infer.items()}
    seconds: dict[str, list[float]] = {name: [] for name in [*infer, "batch"]}
    for _ in range(repeats):
        for name, way in infer.items():
            start = time.process_time()
            for h in fields:
                way(h, couplings)
            seconds[name].append((time.process_time() - start) / rows)
        start = time.process_time()
        infer[OURS](fields, couplings)
        seconds["batch"].append((time.process_time() - start) / rows)
    return {
        "batched_seconds": statistics.median(seconds["batch"]),
        "methods": {
            name: {
                "seconds": seconds[name],
                "median_seconds": statistics.median(seconds[name]),
                "largest_difference": float(np.abs(found[name] - expected).max()),
            }
            for name in infer
        },
    }
