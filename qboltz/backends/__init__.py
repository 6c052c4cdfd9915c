"""Where circuits run: a name, a sampler or a device becomes a ``Backend``.

A new machine needs no code here if it comes with a ``BaseSamplerV2`` or a ``BackendV2``: hand the object in.
"""

from __future__ import annotations

import difflib

from qiskit.primitives import BaseSamplerV2
from qiskit.providers import BackendV2

from qboltz.backends.aer import AerBackend
from qboltz.backends.fake import FakeBackend, fake_devices
from qboltz.backends.given import DeviceBackend, SamplerBackend, is_instance_of
from qboltz.backends.program import Backend, Program, SampleRequest
from qboltz.errors import BackendNotFoundError

__all__ = ["Backend", "Program", "SampleRequest", "resolve_backend"]

#: The name that stands for the machine with the shortest queue.
LEAST_BUSY = "least_busy"


def resolve_backend(backend: str | BaseSamplerV2 | BackendV2 | Backend) -> Backend:
    """The backend that a name or an object stands for. Nothing is contacted or compiled yet.

    Args:
        backend: ``"aer_simulator"``; ``"fake_..."``, a snapshot of a machine with its noise; ``"ibm_..."`` or
            ``"least_busy"``, a machine; any ``BaseSamplerV2``; any ``BackendV2``; or a ``Backend``.

    Raises:
        BackendNotFoundError: no simulator and no fake device has that name, and it is not a name of IBM's
        form. TypeError: the object is none of these.
    """
    if isinstance(backend, Backend):
        return backend
    if isinstance(backend, str):
        return _by_name(backend)
    if isinstance(backend, BaseSamplerV2):
        return SamplerBackend(backend)
    if isinstance(backend, BackendV2):
        if is_instance_of(backend, "qiskit_aer", "AerSimulator"):
            return AerBackend(backend)
        if is_instance_of(backend, "qiskit_ibm_runtime.fake_provider.fake_backend", "FakeBackendV2"):
            return FakeBackend(backend)
        if is_instance_of(backend, "qiskit_ibm_runtime", "IBMBackend"):
            return _machine(backend)
        return DeviceBackend(backend)
    raise TypeError(
        "backend must be a name, a BaseSamplerV2 or a BackendV2, "
        f"got {backend if isinstance(backend, type) else type(backend).__name__}."
    )


def _by_name(name: str) -> Backend:
    if name == "aer_simulator":
        return AerBackend()
    if name == LEAST_BUSY or name.startswith("ibm_"):
        return _machine(name)
    devices = fake_devices()
    if name in devices:
        return FakeBackend(name)
    known = ["aer_simulator", LEAST_BUSY, *devices]
    close = difflib.get_close_matches(name, known, n=3) or difflib.get_close_matches(
        f"fake_{name}", known, n=3, cutoff=0.8
    )
    raise BackendNotFoundError(
        f"backend {name!r} was not found: it is neither 'aer_simulator' nor one of the {len(devices)} fake devices of "
        f"qiskit_ibm_runtime.fake_provider, and machines of IBM are called 'ibm_...' or {LEAST_BUSY!r}."
        + (f" Did you mean {' or '.join(map(repr, close))}?" if close else "")
    )


def _machine(machine: str | BackendV2) -> Backend:
    from qboltz.machine.backend import Machine  # it is built on this package

    return Machine(machine)
