"""From a stored job back to its packing, without its device: to read its result, or to submit it after all."""

from __future__ import annotations

from typing import Any

from qboltz.machine.lines import Line
from qboltz.machine.packing import PackedAnneal
from qboltz.machine.records import JobRecord, unpack_circuit
from qboltz.schedule import AnnealingSchedule


def packing_options(packed: PackedAnneal) -> dict[str, Any]:
    """What ``rebuild`` needs besides circuit and schedule, as plain values."""
    return {
        "lines": [list(line.qubits) for line in packed.lines],
        "fidelities": list(packed.fidelities),
        "pairs": [list(pair) for pair in packed.pairs],
    }


def rebuild(job: JobRecord, qpy: bytes) -> PackedAnneal:
    """The packing with which a job was submitted, whatever the present calibration says."""
    options = job.options
    return PackedAnneal(
        unpack_circuit(qpy),
        tuple(
            Line(tuple(qubits), (), (), fidelity)
            for qubits, fidelity in zip(options["lines"], options["fidelities"], strict=True)
        ),
        job.num_spins,
        AnnealingSchedule(**options["schedule"]),
        tuple((int(first), int(second)) for first, second in options["pairs"]),
        tuple(options["fidelities"]),
    )
