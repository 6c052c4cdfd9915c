"""Which options of the main job mean something for which backend; none is ignored without a word."""

from __future__ import annotations

import argparse
from typing import Any

#: Stands for the machine with the shortest queue. (Importing the name would load Qiskit, and most runs need none.)
LEAST_BUSY = "least_busy"
#: Of annealing circuits.
CIRCUITS = ("layers", "schedule", "shots", "polish")
#: How models share a chip.
PACKING = ("lines", "guard", "max_line_error")
#: Whose account.
ACCOUNT = ("instance", "account", "channel", "url")
#: Of machines.
MACHINE = (
    "max_qpu_seconds",
    "mode",
    "session_seconds",
    "dynamical_decoupling",
    "twirling",
    "runtime_sampler",
    "jobs_store",
    "timeout",
    *PACKING,
    *ACCOUNT,
)
#: Of the sampler, all of them.
SAMPLER = ("backend", *CIRCUITS, "estimator", "readout", "dry_run", *MACHINE)
#: Of the couplings.
COUPLINGS = ("coupling_init", "coupling_lr_factor")

_DEFAULTS: dict[str, Any] = {
    "layers": 6,
    "schedule": "fitted",
    "shots": 128,
    "estimator": "plain",
    "polish": 0,
    "eval_size": 512,
    "coupling_lr_factor": 1.0,
}
_MACHINE_DEFAULTS: dict[str, Any] = {"layers": 2, "estimator": "conditional", "eval_size": 64}


def is_machine(backend: str) -> bool:
    """Whether circuits on it are paid for."""
    return backend == LEAST_BUSY or backend.startswith("ibm_")


def defaults_for(backend: str) -> dict[str, Any]:
    """What options are that were not given."""
    return {**_DEFAULTS, **(_MACHINE_DEFAULTS if is_machine(backend) else {})}


def applicable(backend: str) -> frozenset[str]:
    """The options of the sampler that mean something for a backend."""
    if backend in ("exact", "mean_field"):
        return frozenset({"backend"})
    if backend == "gibbs":
        return frozenset({"backend", "estimator"})
    names = {"backend", "estimator", *CIRCUITS}
    if backend.startswith("fake_"):
        names |= {"readout", "dry_run"}
    if is_machine(backend):
        names |= {"readout", "dry_run", *MACHINE}
    return frozenset(names)


def refuse_unused(parser: Any, given: argparse.Namespace, backend: str, variant: str) -> tuple[str, ...]:
    """Stop with a message if options were given that mean nothing for the backend.

    Those that mean nothing for the variant are returned, to be named: an ablation runs with the options of its twin.

    Args:
        parser: its ``error`` is called.
        given: what was given on the command line, everything else ``None``.
        backend: in effect.
        variant: in effect.
    """
    named = [name for name in (*SAMPLER, *COUPLINGS) if getattr(given, name) is not None]
    without_couplings = variant in ("softmax", "h-only")
    unused = [
        name
        for name in named
        if (variant == "softmax" and name in SAMPLER) or (without_couplings and name in COUPLINGS)
    ]
    wrong = [name for name in named if name in SAMPLER and name not in applicable(backend) and name not in unused]
    if wrong:
        parser.error(
            f"{', '.join(map(flag, wrong))} would have no effect with --backend {backend}: leave "
            f"{'it' if len(wrong) == 1 else 'them'} out. {_reason(wrong[0])}"
        )
    return tuple(map(flag, unused))


def flag(name: str) -> str:
    """As it is written on the command line."""
    return f"--{name.replace('_', '-')}"


def _reason(name: str) -> str:
    if name in CIRCUITS:
        return "Only annealing circuits have it (statevector, aer_simulator, fake_*, ibm_*)."
    if name in MACHINE:
        return "Only machines have it (ibm_*, least_busy)."
    return {
        "estimator": "Only samplers have it.",
        "readout": "Only devices report readout errors (fake_*, ibm_*).",
        "dry_run": "Only machines and their snapshots have a price (ibm_*, least_busy, fake_*).",
    }[name]
