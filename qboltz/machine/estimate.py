"""What a workload takes on a machine before anything is submitted: circuits, gates, fidelity, payload, QPU seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from qiskit.providers import BackendV2

from qboltz.backends.program import SampleRequest, check_num_spins
from qboltz.errors import check_integer
from qboltz.machine.compile import pack
from qboltz.machine.limits import Chunker, ServiceLimits
from qboltz.machine.price import Seconds, Tariff
from qboltz.machine.records import pack_circuit
from qboltz.schedule import AnnealingSchedule


@dataclass(frozen=True)
class Estimate:
    """A workload of ``steps`` requests of ``rows`` models each.

    Attributes:
        backend: name of the machine.
        num_spins, num_layers, rows, shots, steps: what was asked for.
        lines: models that share the chip.
        circuits, executions, jobs: of all steps together; a circuit holds one model per line.
        two_qubit_gates, two_qubit_depth: of one anneal.
        fidelities: of each line the probability that no gate and no readout of its anneal fails, by the calibration.
        payload_bytes: what goes up: circuits and angles.
        result_bytes: what comes down: bits.
        seconds: of QPU; nothing for a simulator.
    """

    backend: str
    num_spins: int
    num_layers: int
    rows: int
    shots: int
    steps: int
    lines: int
    circuits: int
    executions: int
    jobs: int
    two_qubit_gates: int
    two_qubit_depth: int
    fidelities: tuple[float, ...]
    payload_bytes: int
    result_bytes: int
    seconds: Seconds

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        seconds = self.seconds.as_dict()
        return {
            **{name: value for name, value in vars(self).items() if name not in ("fidelities", "seconds")},
            "fidelity": float(np.mean(self.fidelities)),
            "fidelity_best": max(self.fidelities),
            "fidelity_worst": min(self.fidelities),
            "qpu_seconds": seconds.pop("total"),
            "qpu_seconds_by_rule": seconds.pop("rule"),
            "qpu_seconds_parts": seconds,
        }

    def lines_of_text(self) -> list[str]:
        """For people."""
        s, many = self.seconds, "" if self.steps == 1 else f" in {self.steps:,} steps"
        shared = f"{self.lines} lines of {self.num_spins} qubits" if self.lines > 1 else "one model per circuit"
        text = [
            f"{self.backend}: {self.rows:,} rows of {self.num_spins} spins, {self.num_layers} layers, {self.shots} "
            f"shots{f', {self.steps:,} times' if self.steps > 1 else ''}",
            f"  circuits     {self.circuits:,}{many} ({shared}), {self.executions:,} executions, {self.jobs:,} jobs",
            f"  an anneal    {self.two_qubit_gates} two-qubit gates at depth {self.two_qubit_depth}, without any error "
            f"with probability {np.mean(self.fidelities):.2f} ({min(self.fidelities):.2f} to "
            f"{max(self.fidelities):.2f} by line)",
            f"  payload      {_size(self.payload_bytes)} up, {_size(self.result_bytes)} down",
        ]
        if s.total == 0:
            return [*text, "  QPU seconds  none: it is a simulator"]
        return [
            *text,
            f"  QPU seconds  {s.total:,.1f} = {s.repetition:,.1f} delays between executions + {s.circuits:,.2f} "
            f"circuits + {s.jobs:,.1f} overhead of jobs (IBM's quick rule: {s.rule:,.1f})",
        ]


def estimate(
    device: BackendV2,
    num_spins: int,
    schedule: AnnealingSchedule,
    rows: int,
    shots: int,
    *,
    steps: int = 1,
    simulator: bool = False,
    limits: ServiceLimits | None = None,
    guard: int = 0,
    max_error: float | None = None,
    lines: int | None = None,
) -> Estimate:
    """What ``steps`` requests of ``rows`` models take; compiles for the device, submits nothing.

    Args:
        device: a machine, or a snapshot of one.
        num_spins: of every model.
        schedule: the anneal.
        rows: models of a request; each request is at least one job.
        shots: per model.
        steps: requests.
        simulator: it has no chip to share and charges nothing.
        limits: of the service.
        guard, max_error, lines: see ``qboltz.machine.compile.pack``.

    Raises:
        TooManySpinsError: the device has no line of so many qubits.
        TypeError, ValueError: a number is out of its range, or one circuit is too much for a job.
    """
    for name, value in (("rows", rows), ("shots", shots), ("steps", steps)):
        check_integer(name, value)
    check_num_spins(num_spins, device.num_qubits, str(device.name))
    limits = limits or ServiceLimits()
    packed = pack(device, num_spins, schedule, guard=guard, max_error=max_error, lines=1 if simulator else lines)
    tariff = Tariff.of(packed.circuit, device, limits.repetition_seconds) if not simulator else Tariff(0.0, 0.0, 0.0)
    zeros = np.broadcast_to(0.0, (rows, num_spins)), np.broadcast_to(0.0, (rows, num_spins, num_spins))
    request = SampleRequest(schedule, *zeros, shots, np.random.SeedSequence(0))
    plan = Chunker(packed, tariff, limits).plan(request) if not simulator else None
    circuits = steps * (rows if plan is None else plan.circuits)
    jobs = 0 if plan is None else steps * plan.jobs
    seconds = tariff.seconds(circuits * shots, jobs) if not simulator else Seconds(0.0, 0.0, 0.0, 0.0)
    return Estimate(
        backend=str(device.name),
        num_spins=num_spins,
        num_layers=schedule.num_layers,
        rows=rows,
        shots=shots,
        steps=steps,
        lines=packed.num_lines,
        circuits=circuits,
        executions=circuits * shots,
        jobs=jobs,
        two_qubit_gates=packed.two_qubit_gates,
        two_qubit_depth=packed.two_qubit_depth,
        fidelities=packed.fidelities,
        payload_bytes=circuits * 8 * packed.circuit.num_parameters + jobs * len(pack_circuit(packed.circuit)),
        result_bytes=circuits * shots * -(-packed.circuit.num_clbits // 8),
        seconds=seconds,
    )


def _size(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
