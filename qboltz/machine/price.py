r"""What a machine charges: the one cost model, for the budget, the estimates and the records alike.

A circuit is run ``shots`` times; each execution takes the delay before the next one and the circuit itself, each job
some time besides:

.. math:: T = N_{exec} \, (t_{repetition} + t_{circuit}) + N_{jobs} \, t_{job}, \qquad N_{exec} = circuits \cdot shots

The repetition delay (250 us on most machines, 4 ms on some) lets qubits relax and outweighs circuits of a few
microseconds by far, so that what counts is the number of executions, and for small jobs the number of jobs.

Source: IBM's guide "Workload usage", which also gives ``2 + 0.00035 N_exec`` as a quick rule for one job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qiskit.circuit import QuantumCircuit
from qiskit.exceptions import QiskitError
from qiskit.providers import BackendV2

#: Seconds from the end of a circuit to the start of the next, where the machine does not say.
REPETITION_SECONDS = 250e-6
#: Seconds charged for a job besides its executions, by IBM's guide.
JOB_SECONDS = 2.0
#: Seconds of an execution in IBM's quick rule.
RULE_SECONDS = 350e-6
#: Seconds that a two-qubit gate (with what surrounds it) and a readout take where the device does not say.
TYPICAL_GATE, TYPICAL_READOUT = 1e-7, 2e-6


@dataclass(frozen=True)
class Seconds:
    """Seconds of QPU, by what they go to.

    Attributes:
        repetition: delays between executions.
        circuits: the circuits themselves.
        jobs: overhead per job.
        rule: what IBM's quick rule makes of the same executions and jobs, for comparison.
    """

    repetition: float
    circuits: float
    jobs: float
    rule: float

    @property
    def total(self) -> float:
        """Of the parts."""
        return self.repetition + self.circuits + self.jobs

    def as_dict(self) -> dict[str, float]:
        """For records."""
        return {**vars(self), "total": self.total}


@dataclass(frozen=True)
class Tariff:
    """What executions of one circuit on one machine cost.

    Attributes:
        circuit: seconds that the circuit takes.
        repetition: delay between executions.
        job: overhead of a job.
    """

    circuit: float
    repetition: float = REPETITION_SECONDS
    job: float = JOB_SECONDS

    @classmethod
    def of(cls, circuit: QuantumCircuit, device: BackendV2, repetition: float | None = None) -> Tariff:
        """From what the machine says of itself; ``repetition`` overrides its delay."""
        if repetition is None:
            repetition = _number(getattr(device, "default_rep_delay", None)) or REPETITION_SECONDS
        return cls(circuit_seconds(circuit, device), repetition)

    def seconds(self, executions: int, jobs: int = 1) -> Seconds:
        """Of so many executions in so many jobs."""
        return Seconds(
            executions * self.repetition,
            executions * self.circuit,
            jobs * self.job,
            executions * RULE_SECONDS + jobs * JOB_SECONDS,
        )


def circuit_seconds(circuit: QuantumCircuit, device: BackendV2) -> float:
    """Length of a circuit; from its depth where the device does not report how long its gates take."""
    try:
        return float(circuit.estimate_duration(device.target, unit="s"))
    except QiskitError:
        return TYPICAL_READOUT + TYPICAL_GATE * int(circuit.depth(lambda step: len(step.qubits) == 2))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
