"""A whole chip as a sampler: a wide circuit falls into parts that never meet, and each is simulated on its own.

Every part has the noise of its own qubits, see ``qboltz.machine.noise``: the model of Aer, which knows neither
crosstalk nor, unless the circuit has delays, errors of qubits that wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from qiskit.circuit import Instruction, QuantumCircuit
from qiskit.primitives import (
    BaseSamplerV2,
    BitArray,
    DataBin,
    PrimitiveJob,
    PrimitiveResult,
    SamplerPubLike,
    SamplerPubResult,
)
from qiskit.primitives.containers.sampler_pub import SamplerPub
from qiskit.providers import BackendV2

from qboltz.errors import TooManySpinsError, check_integer
from qboltz.machine.channels import Noise, SmallCircuit
from qboltz.machine.noise import gate_noise, readout_noise
from qboltz.machine.parts import Part, measured_qubits, split
from qboltz.seeds import SeedStream
from qboltz.simulator import draw

#: Largest part with noise (67 MB a row at 12 qubits) and without.
MAX_NOISY, MAX_IDEAL = 12, 22
#: Circuits whose parts a sampler keeps.
MAX_CIRCUITS = 4
#: Memory for the states of one chunk of rows: small enough to stay in a processor's cache.
CHUNK_BYTES = 2**22


class ChipSampler(BaseSamplerV2):  # type: ignore[misc]
    """Shots of circuits in the gates of a device, on any of its qubits, with its noise.

    A circuit is measured once, at the end. Its parts may have up to 12 qubits each (22 without noise).

    Parts are numbered by their first classical bit, and part ``l`` of ``K`` in row ``c`` of a pub takes the random
    numbers ``c K + l``: packed on ideal lines, models get the very shots that they get one by one.

    Args:
        device: whose target holds the errors.
        seed: of the samples; ``None`` draws one. Every pub takes the next seed of the stream: equal samplers agree,
            consecutive runs differ.
        noise: without it the device is ideal.
        default_shots: shots of a pub that names none.

    Raises:
        ValueError: on ``run``, a circuit has gates after a measurement, on three or more qubits, or with several
            angles.
        TooManySpinsError: on ``run``, a part has too many qubits.
    """

    def __init__(
        self, device: BackendV2, *, seed: int | None = None, noise: bool = True, default_shots: int = 1024
    ) -> None:
        self.device = device
        self.noise = noise
        self.default_shots = check_integer("default_shots", default_shots)
        self.seeds = SeedStream(seed)
        self._parts: list[tuple[QuantumCircuit, int, list[Part]]] = []

    def run(
        self, pubs: Iterable[SamplerPubLike], *, shots: int | None = None
    ) -> PrimitiveJob[PrimitiveResult[SamplerPubResult]]:
        """Run pubs; the job's result holds one ``BitArray`` for each classical register of each circuit."""
        coerced = [SamplerPub.coerce(pub, self.default_shots if shots is None else shots) for pub in pubs]
        work = [(pub, self.parts(pub.circuit), self.seeds.next()) for pub in coerced]
        job = PrimitiveJob(self._run, work)
        job._submit()
        return job

    def parts(self, circuit: QuantumCircuit) -> list[Part]:
        """The parts of a circuit; those of the last few circuits are kept."""
        for known, size, parts in self._parts:
            if known is circuit and size == len(circuit.data):
                return parts
        parts = [self._part(piece, qubits, bits) for piece, qubits, bits in split(circuit)]
        self._parts = [(circuit, len(circuit.data), parts), *self._parts[: MAX_CIRCUITS - 1]]
        return parts

    def _part(self, piece: QuantumCircuit, qubits: tuple[int, ...], bits: tuple[int, ...]) -> Part:
        limit = MAX_NOISY if self.noise else MAX_IDEAL
        if len(qubits) > limit:
            raise TooManySpinsError(
                f"ChipSampler simulates at most {limit} qubits that act on each other"
                f"{' with noise' if self.noise else ''}, got {len(qubits)}. Use Aer with the device's noise model."
            )
        measured = measured_qubits(piece, bits)
        noise: Noise | None = None
        confusion = None
        if self.noise:
            target = self.device.target

            def noise(gate: Instruction, on: tuple[int, ...]) -> NDArray[np.float64] | None:
                return gate_noise(target, gate, tuple(qubits[index] for index in on))

            confusion = tuple(readout_noise(target, qubits[index]) for index, _ in measured)
        simulator = SmallCircuit(piece, noise)
        return Part(simulator, tuple(parameter.name for parameter in piece.parameters), measured, confusion)

    def _run(
        self, work: list[tuple[SamplerPub, list[Part], np.random.SeedSequence]]
    ) -> PrimitiveResult[SamplerPubResult]:
        return PrimitiveResult([self._run_pub(*one) for one in work], metadata={"version": 2})

    def _run_pub(self, pub: SamplerPub, parts: list[Part], seed: np.random.SeedSequence) -> SamplerPubResult:
        circuit, shots = pub.circuit, pub.shots
        names = [parameter.name for parameter in circuit.parameters]
        angles = pub.parameter_values.as_array(circuit.parameters).reshape(math.prod(pub.shape), len(names))
        columns = [[names.index(name) for name in part.parameters] for part in parts]
        rng = np.random.default_rng(seed)
        packed = {
            register.name: np.zeros((len(angles), shots, -(-register.size // 8)), dtype=np.uint8)
            for register in circuit.cregs
        }
        per_row = max([part.simulator.bytes_per_row for part in parts], default=1) + len(parts) * shots * 16
        step = max(1, CHUNK_BYTES // per_row)
        for first in range(0, len(angles), step):
            rows = slice(first, min(first + step, len(angles)))
            uniforms = torch.from_numpy(rng.random((rows.stop - rows.start, len(parts), shots)))
            bits = np.zeros((rows.stop - rows.start, shots, circuit.num_clbits), dtype=np.uint8)
            with torch.no_grad():
                for number, part in enumerate(parts):
                    probabilities = part.probabilities(angles[rows][:, columns[number]])
                    drawn = draw(probabilities, uniforms[:, number].contiguous()).numpy()
                    for index, (_, bit) in enumerate(part.measured):
                        bits[..., bit] = drawn >> index & 1
            for register in circuit.cregs:
                own = [circuit.find_bit(bit).index for bit in register]
                packed[register.name][rows] = np.packbits(bits[..., own], axis=-1, bitorder="little")[..., ::-1]
        data = {
            register.name: BitArray(packed[register.name].reshape(*pub.shape, shots, -1), register.size)
            for register in circuit.cregs
        }
        metadata = {"shots": shots, "circuit_metadata": circuit.metadata}
        return SamplerPubResult(DataBin(**data, shape=pub.shape), metadata=metadata)
