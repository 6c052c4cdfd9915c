"""The batched simulator as a Qiskit sampler: annealing circuits in, bits out, a pub at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from qiskit.circuit import CircuitInstruction, Parameter, ParameterExpression, QuantumCircuit
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

from qboltz.errors import TooManySpinsError
from qboltz.seeds import SeedStream, integer_seed
from qboltz.simulator import Anneals, draw, populations

#: The preparation of |+> by a compiler for machines without h, up to a global phase.
_PLUS = ((("h", None),), (("rz", np.pi / 2), ("sx", None), ("rz", np.pi / 2)))
Angle: TypeAlias = "float | Parameter"

_GATES = ("h", "sx", "rz", "rzz", "rx", "measure")
_SKIPPED = ("barrier", "delay")
_RULE = "circuit must be an annealing circuit (h, then layers of rz and rzz closed by rx on every qubit, then measure)"


class AnnealingCircuitSampler(BaseSamplerV2):  # type: ignore[misc]
    """Ideal shots of annealing circuits: ``AnnealingSolver(AnnealingCircuitSampler())`` runs as on Aer, but faster.

    A circuit must have the structure of :func:`qboltz.annealing_circuit`: every qubit prepared in ``|+>`` (by ``h``,
    or by ``rz(pi/2) sx rz(pi/2)``), then layers of ``rz`` and ``rzz`` with any angles, each closed by the same ``rx``
    on every qubit, then ``measure`` into any classical bits. Angles are numbers or plain parameters. Barriers, delays
    and qubits without gates are skipped. All rows of a pub run at once.

    Args:
        default_shots: shots of a pub that names none.
        seed: of the samples; ``None`` draws one from the operating system. Every pub takes the next seed of the stream:
            equal samplers agree, consecutive runs differ.
        max_spins: the largest number of qubits with gates accepted.
        dtype: of the simulation, ``torch.float32`` or ``torch.float64``.

    Raises:
        ValueError: on ``run``, a circuit has another structure; the message names the instruction.
        TooManySpinsError: on ``run``, a circuit has more than ``max_spins`` qubits.
    """

    def __init__(
        self,
        *,
        default_shots: int = 1024,
        seed: int | None = None,
        max_spins: int = 20,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if isinstance(default_shots, bool) or not isinstance(default_shots, int) or default_shots < 1:
            raise ValueError(f"default_shots must be a positive integer, got {default_shots!r}.")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
        self.default_shots = default_shots
        self.max_spins = max_spins
        self.dtype = dtype
        self.seeds = SeedStream(seed)

    def run(
        self, pubs: Iterable[SamplerPubLike], *, shots: int | None = None
    ) -> PrimitiveJob[PrimitiveResult[SamplerPubResult]]:
        """Run pubs; the job's result holds one ``BitArray`` for each classical register of each circuit."""
        coerced = [SamplerPub.coerce(pub, self.default_shots if shots is None else shots) for pub in pubs]
        # Structure and seeds belong to the call, not to the thread that the job runs in.
        programs = [(pub, read_circuit(pub.circuit), integer_seed(self.seeds.next())) for pub in coerced]
        for _, program, _ in programs:
            if program.num_spins > self.max_spins:
                raise TooManySpinsError(
                    f"AnnealingCircuitSampler takes circuits on at most max_spins = {self.max_spins} qubits, got "
                    f"{program.num_spins}: its amplitudes alone would take {2.0 ** (program.num_spins - 27):.3g} GiB. "
                    "Use Aer with method='matrix_product_state' or a machine, or raise max_spins."
                )
        job = PrimitiveJob(self._run, programs)
        job._submit()
        return job

    def _run(self, programs: list[tuple[SamplerPub, AnnealingProgram, int]]) -> PrimitiveResult[SamplerPubResult]:
        results = [self._run_pub(*program) for program in programs]
        return PrimitiveResult(results, metadata={"version": 2})

    def _run_pub(self, pub: SamplerPub, program: AnnealingProgram, seed: int) -> SamplerPubResult:
        anneals, order = program.anneals(pub, self.dtype)
        generator = torch.Generator().manual_seed(seed)
        uniforms = torch.rand(anneals.num_rows, pub.shots, dtype=torch.float64, generator=generator)
        numbers = torch.empty(anneals.num_rows, pub.shots, dtype=torch.int64)
        with torch.no_grad():
            for piece, weights in populations(anneals):
                numbers[order[piece]] = draw(weights, uniforms[order[piece]])
        registers = {
            register.name: BitArray(
                _packed(
                    numbers.numpy().reshape(*pub.shape, pub.shots),
                    register.size,
                    program.measured[register.name],
                ),
                register.size,
            )
            for register in pub.circuit.cregs
        }
        metadata = {"shots": pub.shots, "circuit_metadata": pub.circuit.metadata}
        return SamplerPubResult(DataBin(**registers, shape=pub.shape), metadata=metadata)


def _packed(numbers: NDArray[np.int64], num_bits: int, spins: dict[int, int]) -> NDArray[np.uint8]:
    """Configuration numbers as the big-endian bytes of a register whose bit ``i`` is spin ``spins[i]``, or 0."""
    num_bytes = -(-num_bits // 8)
    packed = np.zeros((*numbers.shape, num_bytes), dtype=np.uint8)
    if spins == {bit: bit for bit in range(num_bits)}:
        for byte in range(num_bytes):
            packed[..., num_bytes - 1 - byte] = numbers >> (8 * byte)
        return packed
    for bit, spin in spins.items():
        packed[..., num_bytes - 1 - bit // 8] |= ((numbers >> spin & 1) << bit % 8).astype(np.uint8)
    return packed


@dataclass
class AnnealingProgram:
    """What the instructions of an annealing circuit say, layer by layer.

    Attributes:
        num_spins: the qubits that have gates, numbered in the order of the circuit.
        fields: per layer, spin and the angles of its ``rz`` gates.
        couplings: per layer, pair of spins and the angles of its ``rzz`` gates.
        mixers: per layer, spin and the angle of its ``rx`` gate.
        measured: per classical register, bit and the spin measured into it.
    """

    num_spins: int
    fields: list[list[tuple[int, Angle]]] = field(default_factory=list)
    couplings: list[list[tuple[tuple[int, int], Angle]]] = field(default_factory=list)
    mixers: list[dict[int, Angle]] = field(default_factory=list)
    measured: dict[str, dict[int, int]] = field(default_factory=dict)

    def anneals(self, pub: SamplerPub, dtype: torch.dtype) -> tuple[Anneals, torch.Tensor]:
        """The circuits of all rows of a pub, rows with equal couplings together, and the order of the rows."""
        names = list(pub.circuit.parameters)
        columns = {parameter: index for index, parameter in enumerate(names)}
        rows = int(np.prod(pub.shape, dtype=int))
        values = pub.parameter_values.as_array(names).reshape(rows, len(names)) if names else np.empty((rows, 0))

        def angle(of: Angle) -> NDArray[np.float64] | float:
            return values[:, columns[of]] if isinstance(of, Parameter) else of

        p, n = len(self.mixers), self.num_spins
        fields = np.zeros((p, rows, n))
        pairs = np.zeros((p, n, n, rows))
        mixers = np.zeros((p, rows, n))
        for k in range(p):
            for spin, of in self.fields[k]:
                fields[k, :, spin] -= 0.5 * angle(of)  # RZ(a) = exp(-i a Z / 2)
            for (first, second), of in self.couplings[k]:
                pairs[k, first, second] -= 0.5 * angle(of)
            for spin, of in self.mixers[k].items():
                mixers[k, :, spin] = -0.5 * angle(of)
        if rows and np.ptp(mixers, axis=(1, 2)).max() > 1e-12:
            layer = int(np.argmax(np.ptp(mixers, axis=(1, 2))))
            raise ValueError(
                f"rx angles of a layer must be the same on all qubits and in all rows, got a spread of "
                f"{2 * np.ptp(mixers[layer]):.3g} in layer {layer}."
            )
        flat = pairs.reshape(-1, rows).T
        if rows and bool((flat == flat[:1]).all()):
            distinct, owner = flat[:1], np.zeros(rows, dtype=np.int64)
        else:
            distinct, owner = np.unique(flat, axis=0, return_inverse=True)
        order = np.argsort(owner, kind="stable")
        couplings = distinct.reshape(-1, p, n, n).swapaxes(0, 1)
        couplings = couplings + couplings.swapaxes(-1, -2)
        anneals = Anneals(
            torch.from_numpy(fields[:, order]).to(dtype),
            torch.from_numpy(np.ascontiguousarray(couplings)).to(dtype),
            torch.from_numpy(owner[order]),
            torch.from_numpy(mixers[:, 0, 0].copy() if rows else np.zeros(p)),
        )
        return anneals, torch.from_numpy(order)


def read_circuit(circuit: QuantumCircuit) -> AnnealingProgram:
    """Recognize an annealing circuit.

    Raises:
        ValueError: an instruction has no place in one; the message names it.
    """
    items = [item for item in circuit.data if item.operation.name not in _SKIPPED]
    qubits = sorted({circuit.find_bit(qubit).index for item in items for qubit in item.qubits})
    reader = _Reader(circuit, {qubit: spin for spin, qubit in enumerate(qubits)})
    for item in items:
        reader.read(item)
    return reader.finish()


class _Reader:
    """Walks the instructions; ``layer[spin]`` counts the ``rx`` gates seen on a spin, so that only the order of gates
    on each qubit matters."""

    def __init__(self, circuit: QuantumCircuit, spin_of_qubit: dict[int, int]) -> None:
        self.circuit = circuit
        self.spin_of_qubit = spin_of_qubit
        n = len(spin_of_qubit)
        self.program = AnnealingProgram(n, measured={register.name: {} for register in circuit.cregs})
        self.preparation: list[list[tuple[str, Angle | None]] | None] = [[] for _ in range(n)]
        self.layer = [0] * n
        self.is_measured = [False] * n

    def read(self, item: CircuitInstruction) -> None:
        name = item.operation.name
        spins = [self.spin_of_qubit[self.circuit.find_bit(qubit).index] for qubit in item.qubits]
        if name not in _GATES:
            raise self.refusal(item, "this instruction has no place in it")
        if any(self.is_measured[spin] for spin in spins):
            raise self.refusal(item, "the qubit has been measured before")
        angle = self.angle(item) if item.operation.params else None
        waiting = [spin for spin in spins if self.preparation[spin] is not None]
        if waiting and name in ("h", "rz", "sx"):
            self.prepare(item, spins[0], name, angle)
        elif waiting:
            raise self.refusal(item, "a qubit has not been prepared in |+>")
        elif name == "measure":
            self.measure(item, spins[0])
        elif angle is None:
            raise self.refusal(item, "the qubit is prepared already")
        else:
            self.rotate(item, name, spins, angle)

    def prepare(self, item: CircuitInstruction, spin: int, name: str, angle: Angle | None) -> None:
        seen = self.preparation[spin]
        assert seen is not None
        seen.append((name, angle))
        if not any(_same(seen, plus[: len(seen)]) for plus in _PLUS):
            raise self.refusal(item, "it does not prepare the qubit in |+>")
        if any(_same(seen, plus) for plus in _PLUS):
            self.preparation[spin] = None

    def rotate(self, item: CircuitInstruction, name: str, spins: list[int], angle: Angle) -> None:
        layers = {self.layer[spin] for spin in spins}
        if len(layers) > 1:
            raise self.refusal(item, f"rx gates have put its qubits into different layers, {sorted(layers)}")
        layer = layers.pop()
        program = self.program
        if layer == len(program.mixers):
            program.fields.append([])
            program.couplings.append([])
            program.mixers.append({})
        if name == "rz":
            program.fields[layer].append((spins[0], angle))
        elif name == "rzz":
            program.couplings[layer].append(((min(spins), max(spins)), angle))
        else:
            program.mixers[layer][spins[0]] = angle
            self.layer[spins[0]] += 1

    def measure(self, item: CircuitInstruction, spin: int) -> None:
        self.is_measured[spin] = True
        for register, bit in self.circuit.find_bit(item.clbits[0]).registers:
            self.program.measured[register.name][bit] = spin

    def angle(self, item: CircuitInstruction) -> Angle:
        value = item.operation.params[0]
        if isinstance(value, Parameter):
            return value
        if isinstance(value, ParameterExpression) and value.parameters:
            raise self.refusal(item, "an angle must be a number or a plain parameter")
        return float(value)

    def finish(self) -> AnnealingProgram:
        layers = len(self.program.mixers)
        if layers == 0:
            raise ValueError(f"{_RULE}; this one has no layer.")
        if set(self.layer) != {layers}:
            raise ValueError(f"{_RULE}; this one has {self.layer} rx gates on its qubits, and each needs {layers}.")
        return self.program

    def refusal(self, item: CircuitInstruction, reason: str) -> ValueError:
        qubits = ", ".join(str(self.circuit.find_bit(qubit).index) for qubit in item.qubits)
        parameters = f"({', '.join(map(str, item.operation.params))})" if item.operation.params else ""
        return ValueError(f"{_RULE}; got {item.operation.name}{parameters} on qubit {qubits}: {reason}.")


def _same(seen: list[tuple[str, Angle | None]], plus: tuple[tuple[str, float | None], ...]) -> bool:
    if len(seen) != len(plus):
        return False
    for (name, angle), (plus_name, plus_angle) in zip(seen, plus, strict=True):
        if name != plus_name or isinstance(angle, Parameter):
            return False
        if angle is not None and plus_angle is not None and abs(angle - plus_angle) > 1e-9:
            return False
    return True
