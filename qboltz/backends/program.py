"""A place where annealing circuits run: what a solver asks of it, and how local ones answer, a pub at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import QuantumCircuit
from qiskit.primitives import BaseSamplerV2, PrimitiveResult
from qiskit.providers import BackendV2
from qiskit.transpiler import generate_preset_pass_manager

from qboltz.circuits import SPIN_REGISTER, AnnealingCircuit, annealing_circuit
from qboltz.errors import TooManySpinsError
from qboltz.readout import ReadoutErrors
from qboltz.schedule import AnnealingSchedule
from qboltz.spins import num_pairs, spins_from_bytes

#: Effort of Qiskit's compiler (0 to 3) for devices with limited connectivity. Each circuit is compiled once,
#: so the slowest and best level costs nothing that is felt.
OPTIMIZATION_LEVEL = 3
#: Compiled circuits that a backend keeps.
MAX_PROGRAMS = 16
#: Memory that one pub may take on this computer while it runs, and what it was measured to take on Aer: per row, per
#: bound angle of a row, and per shot (a string of hexadecimal digits in Aer and in Qiskit before it is bits).
PUB_BYTES = 2**28
ROW_BYTES, ANGLE_BYTES, SHOT_BYTES = 16_000, 100, 150


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """Anneals to run: one model per row, invisible spins decoupled.

    Attributes:
        schedule: the anneal.
        fields: ``h``, ``(N, n)``.
        couplings: ``J``, ``(N, n, n)``.
        shots: samples per model.
        seed: of the samples, where the backend takes one. Its ``(entropy, spawn_key)`` names the draw: the same in a
            run that is resumed from a checkpoint, another for every other draw of a run.
        max_rows_per_pub: larger requests are split; ``None`` leaves the size of a pub to the backend.
    """

    schedule: AnnealingSchedule
    fields: NDArray[np.float64]
    couplings: NDArray[np.float64]
    shots: int
    seed: np.random.SeedSequence
    max_rows_per_pub: int | None = None

    @property
    def num_rows(self) -> int:
        """``N``."""
        return len(self.fields)

    @property
    def num_spins(self) -> int:
        """``n``."""
        return int(self.fields.shape[1])

    def parts(self, limit: int) -> Iterator[tuple[slice, SampleRequest]]:
        """The request in as few parts of at most ``limit`` rows as possible, nearly equal, each with its own seed."""
        count = -(-self.num_rows // max(1, limit))
        parts = np.array_split(np.arange(self.num_rows), count) if count else []
        for number, part in enumerate(parts):
            rows = slice(int(part[0]), int(part[-1]) + 1)
            # As SeedSequence.spawn does, but the same however often it is asked.
            seed = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, number))
            yield rows, SampleRequest(self.schedule, self.fields[rows], self.couplings[rows], self.shots, seed)


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
        seed: a seed that was handed in with the sampler, for solvers that were given none.
    """

    label: str
    ideal: bool = True
    billed: bool = False
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

    def sample(self, request: SampleRequest) -> NDArray[np.int8]:
        """Run the anneals of a request: measured spins ``(N, shots, n)``.

        Raises:
            TooManySpinsError: the backend has fewer qubits than there are spins.
            RuntimeError: a result does not have the rows and shots that were asked for.
        """
        spins = np.empty((request.num_rows, request.shots, request.num_spins), dtype=np.int8)
        for rows, part in request.parts(request.max_rows_per_pub or rows_in_memory(request)):
            spins[rows] = self._run_pub(part)
        return spins

    def places(self, request: SampleRequest) -> NDArray[np.int64] | None:
        """Physical qubits on which the spins of a request are measured, ``(N, n)``; ``None`` on a simulator."""
        return None

    def readout(self, request: SampleRequest) -> ReadoutErrors:
        """Reported readout errors of the qubits on which the spins of a request are measured, ``(n,)`` or ``(N, n)``.

        Raises:
            ValueError: the backend reports none.
        """
        raise ValueError(
            f"readout must be ReadoutErrors on {self.label}, which reports none of its own (devices do: fake_*, ibm_*)."
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to find its results again; nothing for backends that keep none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        return

    def _run_pub(self, request: SampleRequest) -> NDArray[np.int8]:
        program = self.program(request.num_spins, request.schedule)
        anneal = annealing_circuit(request.num_spins, request.schedule)
        pub = program.circuit, anneal.bindings(request.fields, request.couplings)
        result = program.sampler(request.seed).run([pub], shots=request.shots).result()
        return read_spins(result, (request.num_rows, request.shots, request.num_spins), self.label)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_programs": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"


def rows_in_memory(request: SampleRequest) -> int:
    """Rows that one pub of this request can have in ``PUB_BYTES``."""
    angles = request.schedule.num_layers * (request.num_spins + num_pairs(request.num_spins))
    return max(1, PUB_BYTES // (ROW_BYTES + angles * ANGLE_BYTES + request.shots * SHOT_BYTES))


def read_spins(result: PrimitiveResult[Any], shape: tuple[int, int, int], label: str) -> NDArray[np.int8]:
    """Spins ``(rows, shots, n)`` of the one pub of a result, read as packed bits (never through counts).

    Raises:
        RuntimeError: the result is not of that shape.
    """
    data = result[0].data
    if SPIN_REGISTER not in data:
        raise RuntimeError(f"{label} returned the registers {list(data)}, expected {SPIN_REGISTER!r}.")
    bits = data[SPIN_REGISTER]
    got = (*bits.shape, bits.num_shots, bits.num_bits)
    if got != shape:
        raise RuntimeError(f"{label} returned (rows, shots, bits) = {got}, expected {shape}.")
    return spins_from_bytes(bits.array, shape[-1])


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
