"""The layer by PennyLane: one ``QNode`` with the torch interface.

``lightning.qubit`` is its fast simulator of single circuits: adjoint differentiation without shots, parameter shifts
with shots. ``default.qubit`` runs the whole batch at once by parameter broadcasting and differentiates by backprop.
Parameter shifts of a broadcast batch are not supported, so the batch is expanded into single circuits there.
"""

from __future__ import annotations

from typing import Any

import pennylane as qml
import torch
from peers_ours import AER, CIRCUIT, SAMPLED
from peers_problem import Method, Problem, Step, differentiate
from torch import Tensor

from qboltz import AnnealingSchedule
from qboltz.spins import pair_indices


def gates(num_spins: int, schedule: AnnealingSchedule, fields: Tensor, pairs: Tensor) -> None:
    """Those of ``qboltz.annealing_circuit``; ``fields (..., n)`` broadcast."""
    first, second = pair_indices(num_spins)
    for wire in range(num_spins):
        qml.Hadamard(wire)
    for layer in schedule.layers():
        for wire in range(num_spins):
            qml.RZ(-2 * layer.field_angle * fields[..., wire], wire)
        for number, wires in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            qml.IsingZZ(-2 * layer.coupling_angle * pairs[number], wires)
        for wire in range(num_spins):
            qml.RX(-2 * layer.mixer_angle, wire)


class Node:
    """A QNode of all magnetizations, and the circuits that its device has executed."""

    def __init__(
        self, num_spins: int, schedule: AnnealingSchedule, device: str, rule: str, shots: int | None, seed: int
    ) -> None:
        def circuit(fields: Tensor, pairs: Tensor) -> list[Any]:
            gates(num_spins, schedule, fields, pairs)
            return [qml.expval(qml.Z(wire)) for wire in range(num_spins)]

        self.device = qml.device(device, wires=num_spins, **({} if shots is None else {"seed": seed}))
        self.node = qml.QNode(circuit, self.device, interface="torch", diff_method=rule)
        if shots is not None:
            self.node = qml.transforms.broadcast_expand(qml.set_shots(self.node, shots=shots))
        self.executed = 0

    def step(self, problem: Problem) -> Step:
        with qml.Tracker(self.device) as tracker:
            step = differentiate(
                problem, lambda h, J: torch.stack(list(self.node(h, J)), -1).reshape(h.shape).to(h.dtype)
            )
        self.executed += int(tracker.totals["executions"])
        return step

    def circuits(self) -> int:
        return self.executed


def methods(num_spins: int, schedule: AnnealingSchedule, shots: int, seed: int) -> dict[str, Method]:
    exact = "expectations of the circuits and their derivative"
    shifted = "samples of the circuits, derivative of the circuits by parameter shifts of as many samples"
    rules: dict[str, tuple[Any, ...]] = {
        "PennyLane, `lightning.qubit`, parameter shift": ("lightning.qubit", "parameter-shift", shots, shifted),
        "PennyLane, `lightning.qubit`, adjoint": ("lightning.qubit", "adjoint", None, f"{exact} (adjoint)"),
        "PennyLane, `default.qubit`, backprop": ("default.qubit", "backprop", None, f"{exact} (autograd)"),
    }
    found = {}
    for name, (device, rule, drawn, computes) in rules.items():
        node = Node(num_spins, schedule, device, rule, drawn, seed)
        found[name] = Method(node.step, computes, node.circuits, beside=(AER, SAMPLED) if drawn else (CIRCUIT,))
    return found
