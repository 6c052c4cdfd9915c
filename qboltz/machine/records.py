"""What the store keeps of a job: who asked for it, what it asks, what became of it, and the packed forms of arrays."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from qiskit import qpy
from qiskit.circuit import QuantumCircuit

State = Literal["intended", "submitted", "done", "failed", "cancelled"]
#: Letters and digits of a key that become the job's tag at the service.
TAG_LENGTH = 20


@dataclass(frozen=True)
class JobRecord:
    """One job: consecutive rows of one draw of one run. Times are seconds since 1970.

    Attributes:
        key: unique; its first letters are the job's tag at the service.
        run: the run it belongs to: its budget, and who may collect it.
        draw: which samples of the run these are, see ``draw_name``.
        attempt: 0, or how often these rows have failed or been given up before.
        first_row, rows: rows ``first_row, ..., first_row + rows - 1`` of the draw.
        shots, num_spins: of each row.
        backend: name of the machine.
        circuit: digest of the compiled circuit.
        digest: of the bound angles, as they are submitted.
        options: what was submitted besides: schedule, lines, mode, sampler. Never credentials.
        estimate: QPU seconds that were expected.
        usage: QPU seconds that the service charged, where it has said so.
        tried: when it was last submitted; before that it cannot be at the service.
        message: why it failed.
    """

    key: str
    run: str
    draw: str
    attempt: int
    first_row: int
    rows: int
    shots: int
    num_spins: int
    backend: str
    circuit: str
    digest: str
    options: dict[str, Any] = field(repr=False)
    estimate: float
    state: State = "intended"
    job_id: str | None = None
    created: float = 0.0
    tried: float | None = None
    submitted: float | None = None
    finished: float | None = None
    usage: float | None = None
    message: str | None = None

    @property
    def tag(self) -> str:
        """The tag under which the service can find the job when its id was lost."""
        return f"qb{self.key[:TAG_LENGTH]}"

    @property
    def name(self) -> str:
        """The id of the job, or its key while there is none."""
        return self.job_id or self.key

    @property
    def seconds(self) -> float:
        """QPU seconds that it counts for: those charged, else those expected; none if it never came to the service."""
        if self.usage is not None:
            return self.usage
        return self.estimate if self.job_id or self.state in ("intended", "submitted") else 0.0


def draw_name(seed: np.random.SeedSequence) -> str:
    """Name of a draw within its run: the seed of its samples, which no other draw of the run has."""
    return f"{seed.entropy:x}/{'.'.join(map(str, seed.spawn_key))}"


def job_key(run: str, draw: str, first_row: int, attempt: int, digest: str) -> str:
    """The unique name of a job, for a run, a place in it, and a content."""
    return hashlib.sha256(json.dumps([run, draw, first_row, attempt, digest]).encode()).hexdigest()[:32]


def digest_of(*arrays: NDArray[Any]) -> str:
    """A digest of numbers and shapes."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:32]


def pack_models(fields: NDArray[np.float64], couplings: NDArray[np.float64]) -> bytes:
    """Fields ``(rows, n)`` and couplings ``(rows, n, n)``, compressed."""
    return zlib.compress(np.concatenate([fields.ravel(), couplings.ravel()]).astype("<f8").tobytes())


def unpack_models(data: bytes, rows: int, num_spins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What ``pack_models`` packed."""
    numbers = np.frombuffer(zlib.decompress(data), dtype="<f8").astype(np.float64)
    fields, couplings = np.split(numbers, [rows * num_spins])
    return fields.reshape(rows, num_spins), couplings.reshape(rows, num_spins, num_spins)


def pack_spins(spins: NDArray[np.int8]) -> bytes:
    """Spins of any shape, one bit each, compressed."""
    return zlib.compress(np.packbits(spins.ravel() < 0, bitorder="little").tobytes())


def unpack_spins(data: bytes, shape: tuple[int, ...]) -> NDArray[np.int8]:
    """What ``pack_spins`` packed."""
    packed = np.frombuffer(zlib.decompress(data), dtype=np.uint8)
    bits = np.unpackbits(packed, count=int(np.prod(shape)), bitorder="little").view(np.int8)
    spins: NDArray[np.int8] = (1 - 2 * bits).reshape(shape)
    return spins


def pack_circuit(circuit: QuantumCircuit) -> bytes:
    """QPY, compressed."""
    buffer = io.BytesIO()
    qpy.dump(circuit, buffer)
    return zlib.compress(buffer.getvalue())


def unpack_circuit(data: bytes) -> QuantumCircuit:
    """What ``pack_circuit`` packed."""
    (circuit,) = qpy.load(io.BytesIO(zlib.decompress(data)))
    return circuit
