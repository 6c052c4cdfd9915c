"""What a result must look like to be believed, and when a stored one answers a new question."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qboltz.backends.program import SampleRequest
from qboltz.circuits import SPIN_REGISTER
from qboltz.machine.packing import PackedAnneal
from qboltz.machine.records import JobRecord

#: Numbers this close are the same question: float32 rounded in another order, on another number of threads.
RTOL, ATOL = 1e-4, 1e-5


def spins_of(result: Any, job: JobRecord, packed: PackedAnneal) -> NDArray[np.int8]:
    """Spins ``(rows, shots, n)`` of the one pub of a job's result.

    Raises:
        ValueError: its registers, circuits, shots or bits are not those that were asked for.
    """
    data = result[0].data
    if SPIN_REGISTER not in data:
        raise ValueError(f"it has the registers {list(data)}, expected {SPIN_REGISTER!r}.")
    bits = data[SPIN_REGISTER]
    got = (*bits.shape, bits.num_shots, bits.num_bits)
    expected = packed.num_circuits(job.rows), job.shots, packed.circuit.num_clbits
    if got != expected:
        raise ValueError(f"it has (circuits, shots, bits) = {got}, expected {expected}.")
    return packed.unpack(bits.array, job.rows)


def same_question(
    job: JobRecord, models: tuple[NDArray[np.float64], NDArray[np.float64]], request: SampleRequest
) -> bool:
    """Whether a job has the models, the schedule and the shots of its rows of a request."""
    if (job.shots, job.num_spins) != (request.shots, request.num_spins):
        return False
    rows = slice(job.first_row, job.first_row + job.rows)
    schedule, asked = job.options["schedule"], request.schedule.as_dict()
    pairs = [*zip(models, (request.fields[rows], request.couplings[rows]), strict=True)]
    pairs += [(np.array(schedule[name]), np.array(asked[name])) for name in asked]
    return all(one.shape == other.shape and np.allclose(one, other, RTOL, ATOL) for one, other in pairs)
