"""What the tests of the machine path share: requests of two spins, and a machine with little patience."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

import qboltz
from qboltz.backends.program import SampleRequest
from qboltz.machine.backend import Machine, MachineOptions
from qboltz.machine.patience import Patience

QUICK = Patience(
    request=10,
    submission=20,
    pause=0.05,
    longest_pause=0.2,
    rate_pause=0.1,
    outage=20,
    poll=0.02,
    longest_poll=0.1,
    lookup=0.5,
)
SCHEDULE = qboltz.AnnealingSchedule.fitted(1)
SHOTS = 32


@cache
def device(url: str, name: str) -> Any:
    """The client's object for a machine, looked up once; ``Machine(name)`` would do so for every test."""
    from qiskit_ibm_runtime import QiskitRuntimeService

    return QiskitRuntimeService().backend(name)


def machine(**options: Any) -> Machine:
    """The small machine of the loopback service."""
    return Machine(device(os.environ["QISKIT_IBM_URL"], "ibm_small"), chosen(**options))


def chosen(**options: Any) -> MachineOptions:
    """Options with little patience."""
    return MachineOptions(**{"patience": QUICK, "timeout": 20.0, **options})


def request(rows: int = 5, number: int = 0, shots: int = SHOTS) -> SampleRequest:
    """A draw of a run; the same for the same ``number``."""
    rng = np.random.default_rng(1)
    fields, couplings = rng.normal(size=(rows, 2)), np.zeros((rows, 2, 2))
    couplings[:, 0, 1] = couplings[:, 1, 0] = rng.normal(size=rows)
    return SampleRequest(SCHEDULE, fields, couplings, shots, np.random.SeedSequence(7, spawn_key=(0, number)))
