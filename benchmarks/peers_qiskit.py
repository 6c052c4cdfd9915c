"""The layer by qiskit-machine-learning: ``SamplerQNN`` in a ``TorchConnector``, on Aer.

The fields are the network's inputs and the couplings its weights. Its output is the distribution over all ``2**n`` bit
strings, which a matrix product turns into magnetizations, and its gradient is that distribution's by parameter shifts:
two circuits for each parameter and layer. ``EstimatorQNN`` would shift once for each of the ``n`` observables, and so
run ``n`` times as many circuits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from peers_ours import AER, SAMPLED
from peers_problem import Method, Problem, Step
from qiskit.circuit import ParameterVector, QuantumCircuit
from qiskit.primitives import BaseSamplerV2, SamplerPubLike
from qiskit.primitives.containers.sampler_pub import SamplerPub
from qiskit_aer.primitives import SamplerV2
from qiskit_machine_learning.connectors import TorchConnector
from qiskit_machine_learning.gradients import ParamShiftSamplerGradient
from qiskit_machine_learning.neural_networks import SamplerQNN

from qboltz import AnnealingSchedule
from qboltz.backends.aer import aer_options
from qboltz.seeds import SeedStream, integer_seed
from qboltz.spins import pair_indices, spin_table


class CountingSampler(BaseSamplerV2):  # type: ignore[misc]
    """Aer with the options of this package, a new seed for each job, and a count of the circuits."""

    def __init__(self, shots: int, seed: int) -> None:
        self.shots = shots
        self.seeds = SeedStream(seed)
        self.circuits = 0

    def run(self, pubs: Iterable[SamplerPubLike], *, shots: int | None = None) -> Any:
        coerced = [SamplerPub.coerce(pub, shots) for pub in pubs]
        self.circuits += sum(pub.parameter_values.size for pub in coerced)
        seed = integer_seed(self.seeds.next())
        sampler = SamplerV2(default_shots=self.shots, seed=seed, options={"backend_options": aer_options()})
        return sampler.run(coerced, shots=shots)


def open_circuit(num_spins: int, schedule: AnnealingSchedule) -> tuple[QuantumCircuit, list[Any], list[Any]]:
    """The gates of ``qboltz.annealing_circuit`` with one parameter for each field and each coupling; no measurement."""
    fields, pairs = ParameterVector("h", num_spins), ParameterVector("J", num_spins * (num_spins - 1) // 2)
    first, second = pair_indices(num_spins)
    circuit = QuantumCircuit(num_spins)
    circuit.h(range(num_spins))
    for layer in schedule.layers():
        for qubit, field in enumerate(fields):
            circuit.rz(-2 * layer.field_angle * field, qubit)
        for one, other, coupling in zip(first.tolist(), second.tolist(), pairs, strict=True):
            circuit.rzz(-2 * layer.coupling_angle * coupling, one, other)
        circuit.rx(-2 * layer.mixer_angle, range(num_spins))
    return circuit, list(fields), list(pairs)


def methods(num_spins: int, schedule: AnnealingSchedule, shots: int, seed: int) -> dict[str, Method]:
    sampler = CountingSampler(shots, seed)
    circuit, fields, pairs = open_circuit(num_spins, schedule)
    network = SamplerQNN(
        circuit=circuit,
        sampler=sampler,
        input_params=fields,
        weight_params=pairs,
        input_gradients=True,
        gradient=ParamShiftSamplerGradient(sampler),
    )
    layer = TorchConnector(network)

    def step(problem: Problem) -> Step:
        layer.weight.data.copy_(problem.pairs)
        inputs = problem.fields.clone().requires_grad_()
        m = layer(inputs).to(inputs) @ spin_table(num_spins, dtype=inputs.dtype)
        grad_fields, grad_pairs = torch.autograd.grad((m * problem.upstream).sum(), (inputs, layer.weight))
        return Step(m.detach(), grad_fields, grad_pairs)

    computes = "samples of the circuits, derivative of the circuits by parameter shifts of as many samples"
    name = "qiskit-machine-learning, `SamplerQNN` on Aer"
    return {name: Method(step, computes, lambda: sampler.circuits, beside=(AER, SAMPLED))}
