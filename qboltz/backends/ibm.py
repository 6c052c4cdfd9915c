"""IBM machines, by name or as backend objects of the runtime client; the service is contacted on first use."""

from __future__ import annotations

import difflib
import importlib.util
from typing import Any

from qiskit.primitives import BaseSamplerV2
from qiskit.providers import BackendV2
from qiskit.providers.exceptions import QiskitBackendNotFoundError

from qboltz.backends.program import Backend, Program, compile_for
from qboltz.circuits import AnnealingCircuit
from qboltz.errors import BackendNotFoundError

#: The name that stands for the machine with the shortest queue.
LEAST_BUSY = "least_busy"


class IBMBackend(Backend):
    """A machine of the IBM Quantum Platform in job mode: one job per pub.

    The account is the one the runtime client finds by itself: the variables ``QISKIT_IBM_TOKEN`` and
    ``QISKIT_IBM_INSTANCE``, or an account saved with ``QiskitRuntimeService.save_account``.
    """

    ideal = False
    billed = True

    def __init__(self, machine: str | BackendV2) -> None:
        super().__init__(machine if isinstance(machine, str) else machine.name)
        self._machine = machine
        self._live: BackendV2 | None = None

    def compile(self, anneal: AnnealingCircuit) -> Program:
        if self._live is None:
            named = isinstance(self._machine, str)
            self._live = find_machine(self._machine, anneal.num_spins) if named else self._machine
        sampler = runtime_sampler(self._live)
        return Program(compile_for(anneal.circuit, self._live), lambda seed: sampler)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_live": None}


def runtime_sampler(machine: BackendV2) -> BaseSamplerV2:
    """The runtime client's sampler: the one built on its executor, which took over from ``SamplerV2`` in 0.50."""
    if importlib.util.find_spec("qiskit_ibm_runtime.executor_sampler") is None:
        from qiskit_ibm_runtime import SamplerV2

        return SamplerV2(mode=machine)
    from qiskit_ibm_runtime.executor_sampler import Sampler

    return Sampler(mode=machine)


def find_machine(name: str, num_spins: int) -> BackendV2:
    """A machine by name, or the least busy one with enough qubits.

    Raises:
        BackendNotFoundError: no account, an account that is refused, or no machine of that name.
    """
    from qiskit_ibm_runtime import QiskitRuntimeService
    from qiskit_ibm_runtime.accounts import AccountNotFoundError, InvalidAccountError

    try:
        service = QiskitRuntimeService()
    except AccountNotFoundError as error:
        raise BackendNotFoundError(
            f"backend {name!r} needs an IBM Quantum account, and none was found in the environment (QISKIT_IBM_TOKEN) "
            "or among the saved accounts. Save one once with QiskitRuntimeService.save_account(token=..., "
            "instance=...), or use a fake device such as 'fake_torino', which needs none."
        ) from error
    except InvalidAccountError as error:
        raise BackendNotFoundError(
            f"backend {name!r} cannot be looked up: the IBM Quantum account was refused, or the sign-in service could "
            f"not be reached (the client reports both alike: {error}). Check the network, then the token."
        ) from error
    try:
        if name == LEAST_BUSY:
            return service.least_busy(min_num_qubits=num_spins, operational=True, simulator=False)
        return service.backend(name)
    except QiskitBackendNotFoundError as error:
        reachable = sorted(machine.name for machine in service.backends())
        close = difflib.get_close_matches(name, reachable, n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise BackendNotFoundError(
            f"backend {name!r} is not among the machines of this IBM Quantum account, "
            f"{', '.join(reachable) or 'which lists none (or its service did not answer)'}.{hint}"
        ) from error
