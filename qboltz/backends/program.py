"""What a backend hands to the solver: a compiled circuit, and samplers that run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from qiskit.circuit import QuantumCircuit
from qiskit.primitives import BaseSamplerV2
from qiskit.providers import BackendV2
from qiskit.transpiler import generate_preset_pass_manager

from qboltz.circuits import AnnealingCircuit, annealing_circuit
from qboltz.errors import TooManySpinsError
from qboltz.schedule import AnnealingSchedule

#: Effort of Qiskit's compiler (0 to 3) for devices with limited connectivity. Each circuit is compiled once,
#: so the slowest and best level costs nothing that is felt.
OPTIMIZATION_LEVEL = 3
#: Compiled circuits that a backend keeps.
MAX_PROGRAMS = 16


@dataclass(frozen=True)
class Program:
    """A circuit in the gates of its backend, and where it runs.

    Attributes:
        circuit: the compiled anneal. It has the parameters of ``annealing_circuit``, so that
            ``AnnealingCircuit.bindings`` fits it, and classical bit ``i`` of its register is spin ``i``.
        sampler: gives, for a seed, a sampler whose next run depends on that seed. A machine ignores the seed.
    """

    circuit: QuantumCircuit
    sampler: Callable[[np.random.SeedSequence], BaseSamplerV2]


class Backend(ABC):
    """A place where annealing circuits run.

    A backend is cheap to make and to copy. What is live (simulators, devices, compiled circuits, connections)
    is made on first use, and neither pickled nor copied.

    Attributes:
        label: name for messages and records.
        ideal: whether its samples follow the noiseless distribution of the circuit.
        billed: whether running a circuit may cost money; such a backend gets no self-test.
        max_executions: most circuits times shots that one job may hold, ``None`` for no limit.
        seed: a seed that was handed in with the sampler, for solvers that were given none.
    """

    label: str
    ideal: bool = True
    billed: bool = False
    max_executions: int | None = None
    seed: int | None = None

    def __init__(self, label: str) -> None:
        self.label = label
        self._programs: dict[tuple[int, AnnealingSchedule], Program] = {}

    def program(self, num_spins: int, schedule: AnnealingSchedule) -> Program:
        """The compiled anneal, made once for each number of spins and schedule.

        Raises:
            TooManySpinsError: the backend has fewer qubits than there are spins.
            BackendNotFoundError: the backend, looked up now, is not there.
        """
        key = num_spins, schedule
        if key not in self._programs:
            if len(self._programs) >= MAX_PROGRAMS:  # an adaptive schedule makes a new circuit at every refit
                del self._programs[next(iter(self._programs))]
            self._programs[key] = self.compile(annealing_circuit(num_spins, schedule))
        return self._programs[key]

    @abstractmethod
    def compile(self, anneal: AnnealingCircuit) -> Program:
        """Make the program for one circuit."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_programs": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"


def check_num_spins(num_spins: int, num_qubits: int | None, label: str) -> None:
    """Raise ``TooManySpinsError`` if a backend has fewer qubits than there are spins (``None``: no limit known)."""
    if num_qubits is not None and num_spins > num_qubits:
        raise TooManySpinsError(
            f"num_spins must be at most {num_qubits}, the qubits of {label}, got {num_spins}. "
            "Shorten the context, or use a backend with more qubits."
        )


def compile_for(circuit: QuantumCircuit, device: BackendV2 | None) -> QuantumCircuit:
    """The circuit in the gates and on the qubits of a device; as it is where all its gates and pairs are native."""
    if device is None or (device.coupling_map is None and set(circuit.count_ops()) <= set(device.operation_names)):
        return circuit
    check_num_spins(circuit.num_qubits, device.num_qubits, device.name)
    manager = generate_preset_pass_manager(optimization_level=OPTIMIZATION_LEVEL, backend=device, seed_transpiler=0)
    return manager.run(circuit)
