"""Solvers by name. A new kind of solver is one module and one line in ``SOLVERS``."""

from __future__ import annotations

import importlib
from typing import Any

from qboltz.ensemble import Solver
from qboltz.errors import unknown_name

#: Name to class, as "module:class" so that naming one solver imports no other.
SOLVERS: dict[str, str] = {
    "exact": "qboltz.solvers.exact:ExactSolver",
    "statevector": "qboltz.solvers.statevector:StatevectorSolver",
    "annealing": "qboltz.solvers.annealing:AnnealingSolver",
    "gibbs": "qboltz.solvers.gibbs:GibbsSolver",
    "mean_field": "qboltz.solvers.mean_field:MeanFieldSolver",
}

#: Names that mean an ``AnnealingSolver`` on that backend.
BACKEND_PREFIXES = ("aer_", "fake_", "ibm_", "least_busy")


def make_solver(name: str, **options: Any) -> Solver:
    """A solver by its name in ``SOLVERS``, or an ``AnnealingSolver`` by the name of its backend.

    Args:
        name: ``"exact"``, ``"statevector"``, ``"annealing"``, ``"gibbs"``, ``"mean_field"``, or a backend:
            ``"aer_simulator"``, ``"fake_torino"``, ``"ibm_fez"``, ...
        options: what the class takes, for instance ``shots=256``.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
        TypeError: the solver does not take one of the options.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string such as 'exact' or 'aer_simulator', got {type(name).__name__}.")
    if name in SOLVERS:
        return _load(SOLVERS[name], options)
    if name.startswith(BACKEND_PREFIXES):
        return _load(SOLVERS["annealing"], {"backend": name, **options})
    raise ValueError(unknown_name("solver", name, [*SOLVERS, "aer_simulator", "fake_torino", "ibm_fez"]))


def _load(path: str, options: dict[str, Any]) -> Solver:
    module, _, attribute = path.partition(":")
    solver: Solver = getattr(importlib.import_module(module), attribute)(**options)
    return solver
