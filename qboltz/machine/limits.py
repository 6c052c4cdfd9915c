"""What the service takes in one job, and how rows are divided among jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qboltz.backends.program import SampleRequest
from qboltz.machine.packing import PackedAnneal
from qboltz.machine.price import Tariff


@dataclass(frozen=True)
class ServiceLimits:
    """What the service takes, in one place.

    Attributes:
        executions: circuits times shots of one job (IBM: "Job limits", 10 million for a sampler).
        seconds: QPU time of one job (IBM: "Maximum execution time", three hours).
        payload_bytes: angles that go up, or bits that come down, per job. IBM names no limit; inputs were once limited
            to 64 MB, and results that are too large fail.
        in_flight: jobs of one process that may be queued or running. The Open plan takes three.
        repetition_seconds: from the end of a circuit to the start of the next; ``None`` takes what the machine says.
    """

    executions: int = 10_000_000
    seconds: float = 10_800.0
    payload_bytes: int = 64_000_000
    in_flight: int = 3
    repetition_seconds: float | None = None


@dataclass(frozen=True)
class Plan:
    """What a request takes: numbers of jobs, circuits and executions, and expected QPU seconds."""

    jobs: int
    rows: int
    circuits: int
    executions: int
    seconds: float


@dataclass(frozen=True)
class Chunker:
    """Divides rows among jobs within the limits.

    Attributes:
        packed: the circuit.
        tariff: what its executions cost.
        limits: of the service.
    """

    packed: PackedAnneal
    tariff: Tariff
    limits: ServiceLimits

    def plan(self, request: SampleRequest) -> Plan:
        """What a request takes that has no jobs yet."""
        parts = list(self.parts(0, request.num_rows, request))
        circuits = sum(self.packed.num_circuits(rows) for _, rows in parts)
        seconds = sum(self.seconds(rows, request.shots) for _, rows in parts)
        return Plan(len(parts), request.num_rows, circuits, circuits * request.shots, seconds)

    def seconds(self, rows: int, shots: int) -> float:
        """QPU seconds that a job is expected to take."""
        return self.tariff.seconds(self.packed.num_circuits(rows) * shots).total

    def parts(self, start: int, stop: int, request: SampleRequest) -> Iterator[tuple[int, int]]:
        """First row and number of rows of as few jobs as the limits allow, filling their circuits.

        Raises:
            ValueError: a single circuit is too much for a job.
        """
        packed = self.packed
        circuits = packed.num_circuits(stop - start)
        parts = -(-circuits // self._circuits_per_job(request.shots))
        if request.max_rows_per_pub is not None:
            parts = max(parts, -(-(stop - start) // request.max_rows_per_pub))
        for numbers in np.array_split(np.arange(circuits), min(parts, circuits)):
            first = start + int(numbers[0]) * packed.num_lines
            last = min(stop, start + (int(numbers[-1]) + 1) * packed.num_lines)
            yield first, last - first

    def _circuits_per_job(self, shots: int) -> int:
        limits, packed = self.limits, self.packed
        angles = 8 * max(1, packed.circuit.num_parameters)
        bits = packed.num_lines * packed.num_spins * shots / 8
        most = {
            "executions": limits.executions // shots,
            "seconds": int((limits.seconds - self.tariff.job) / self.tariff.seconds(shots, jobs=0).total),
            "payload_bytes": int(limits.payload_bytes / max(angles, bits)),
        }
        tightest = min(most, key=lambda name: most[name])
        if most[tightest] < 1:
            raise ValueError(
                f"shots must be fewer: one circuit of {shots} shots is more than a job may be "
                f"({tightest} at most {getattr(limits, tightest):g})."
            )
        return most[tightest]
