"""Fake devices: snapshots of real machines, simulated with the noise of the qubits that are used."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import QuantumCircuit, QuantumRegister
from qiskit.providers import BackendV2
from qiskit.transpiler import Target

from qboltz.backends.aer import aer_sampler, num_cores
from qboltz.backends.program import Backend, Program, SampleRequest, compile_for, rows_in_memory
from qboltz.backends.readout import measured_lines, measured_qubits, target_readout
from qboltz.circuits import AnnealingCircuit, annealing_circuit
from qboltz.errors import TooManySpinsError
from qboltz.machine.chip import MAX_NOISY, ChipSampler
from qboltz.machine.compile import pack
from qboltz.machine.isa import translate
from qboltz.machine.lines import any_to_any, find_lines
from qboltz.machine.network import coupled_pairs, line_anneal
from qboltz.machine.packing import PackedAnneal
from qboltz.readout import ReadoutErrors
from qboltz.schedule import AnnealingSchedule
from qboltz.seeds import SeedStream, integer_seed

#: Up to so many qubits Aer is fastest with a density matrix, beyond with trajectories.
MAX_DENSITY_MATRIX = 10


class FakeBackend(Backend):
    """A snapshot of ``qiskit_ibm_runtime.fake_provider``, by its name or as the object.

    It samples as the machine would: models are packed on disjoint lines of the chip, the best line first, and every
    line has its own noise. Where the chip has no line of so many usable qubits, or the density matrix of a line is too
    large (more than 12 spins), it runs one model at a time through Aer.
    """

    ideal = False

    def __init__(self, device: str | BackendV2) -> None:
        super().__init__(device if isinstance(device, str) else device.name)
        self._device = device
        self._sampler: ChipSampler | None = None

    @property
    def device(self) -> BackendV2:
        """The snapshot (reading its files takes a moment the first time)."""
        return _named_device(self._device) if isinstance(self._device, str) else self._device

    def compile(self, anneal: AnnealingCircuit) -> Program:
        if isinstance(self._device, str):
            return _named_program(self._device, anneal.num_spins, anneal.schedule)
        return noisy_program(self._device, anneal)

    def packed(self, request: SampleRequest) -> PackedAnneal | None:
        """The packed circuit for a request; ``None`` where models run one by one."""
        if request.num_spins > MAX_NOISY:
            return None
        lines = request.num_rows if request.num_rows < self.device.num_qubits // request.num_spins else None
        pairs = coupled_pairs(request.couplings)
        try:
            return pack(self.device, request.num_spins, request.schedule, pairs=pairs, lines=lines)
        except TooManySpinsError:
            return None

    def places(self, request: SampleRequest) -> NDArray[np.int64]:
        places = np.empty(request.fields.shape, dtype=np.int64)
        for rows, part in request.parts(request.max_rows_per_pub or rows_in_memory(request)):  # as ``sample`` does
            packed = self.packed(part)
            if packed is None:
                places[rows] = measured_qubits(placed(self.device, annealing_circuit(part.num_spins, part.schedule)))
            else:
                places[rows] = measured_lines(packed, part.num_rows)
        return places

    def readout(self, request: SampleRequest) -> ReadoutErrors:
        return target_readout(self.device, self.places(request))

    def _run_pub(self, request: SampleRequest) -> NDArray[np.int8]:
        packed = self.packed(request)
        if packed is None:
            return super()._run_pub(request)
        if self._sampler is None:
            self._sampler = ChipSampler(self.device)
        self._sampler.seeds = SeedStream(integer_seed(request.seed))
        pub = packed.circuit, packed.bindings(request.fields, request.couplings)
        result = self._sampler.run([pub], shots=request.shots).result()
        return packed.unpack(result[0].data.spins, request.num_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_sampler": None}


@cache
def fake_devices() -> dict[str, type[BackendV2]]:
    """Name to class of all fake devices (importing them takes seconds, making one reads its files)."""
    from qiskit_ibm_runtime import fake_provider
    from qiskit_ibm_runtime.fake_provider.fake_backend import FakeBackendV2

    classes = (value for value in vars(fake_provider).values() if isinstance(value, type))
    return {
        kind.backend_name: kind for kind in classes if issubclass(kind, FakeBackendV2) and hasattr(kind, "backend_name")
    }


@cache
def _named_device(name: str) -> BackendV2:
    return fake_devices()[name]()


@lru_cache(maxsize=64)
def _named_program(name: str, num_spins: int, schedule: AnnealingSchedule) -> Program:
    return noisy_program(_named_device(name), annealing_circuit(num_spins, schedule))


def noisy_program(device: BackendV2, anneal: AnnealingCircuit) -> Program:
    """The anneal compiled for the device, on the qubits that it uses and with the noise of these alone.

    Aer's noise model of a whole chip takes seconds to build and slows every run down; the errors of the used
    qubits give the same samples. The noise is that of ``NoiseModel.from_backend``: gate errors with
    relaxation, and readout.
    """
    from qiskit_aer import AerSimulator
    from qiskit_aer.noise import NoiseModel
    from qiskit_aer.noise.device import basic_device_gate_errors, basic_device_readout_errors

    circuit, target = cut(placed(device, anneal), device.target)
    noise = NoiseModel(basis_gates=list(target.operation_names))
    for qubits, error in basic_device_readout_errors(target=target):
        noise.add_readout_error(error, qubits)
    for name, qubits, error in basic_device_gate_errors(target=target):
        noise.add_quantum_error(error, name, qubits)
    simulator = AerSimulator(
        method="density_matrix" if circuit.num_qubits <= MAX_DENSITY_MATRIX else "automatic",
        noise_model=noise,
        max_parallel_experiments=num_cores(),
    )
    return Program(circuit, lambda seed: aer_sampler(simulator, seed))


def placed(device: BackendV2, anneal: AnnealingCircuit) -> QuantumCircuit:
    """The anneal in the gates of the device: the swap network on its best line, or Qiskit's routing if it has none."""
    target, n = device.target, anneal.num_spins
    if any_to_any(target) or n == 1:
        return compile_for(anneal.circuit, device)
    layers = sum(layer.coupling_angle != 0 for layer in anneal.schedule.layers())
    lines = find_lines(target, n, num_layers=layers, limit=1)
    if not lines:
        return compile_for(anneal.circuit, device)
    narrow = line_anneal(n, anneal.schedule).circuit
    wide = QuantumCircuit(QuantumRegister(target.num_qubits, "q"), *narrow.cregs, name=anneal.circuit.name)
    wide.compose(narrow, qubits=lines[0].qubits, clbits=range(n), inplace=True)
    return translate(wide, target)


def cut(circuit: QuantumCircuit, target: Target) -> tuple[QuantumCircuit, Target]:
    """A circuit on a device, and the device, reduced to the qubits that the circuit acts on, in ascending order."""
    used = sorted({circuit.find_bit(qubit).index for step in circuit.data for qubit in step.qubits})
    place = {qubit: index for index, qubit in enumerate(used)}
    small = QuantumCircuit(QuantumRegister(len(used), "q"), *circuit.cregs, name=circuit.name)
    for step in circuit.data:
        small.append(step.operation, [place[circuit.find_bit(qubit).index] for qubit in step.qubits], step.clbits)

    properties = target.qubit_properties
    part = Target(
        num_qubits=len(used),
        dt=target.dt,
        qubit_properties=None if properties is None else [properties[qubit] for qubit in used],
    )
    for name in target.operation_names:
        everywhere = target[name] or {}
        here = {
            tuple(place[qubit] for qubit in qubits): value
            for qubits, value in everywhere.items()
            if qubits is not None and place.keys() >= set(qubits)
        }
        if here:
            part.add_instruction(target.operation_from_name(name), here, name=name)
    return small, part
