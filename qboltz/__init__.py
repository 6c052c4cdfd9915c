"""Boltzmann attention on quantum annealing circuits: attention weights are magnetizations of Ising models.

The names below are loaded on first use, so that ``import qboltz`` costs milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qboltz.adaptive import AdaptiveSchedule as AdaptiveSchedule
    from qboltz.attention import BoltzmannAttention as BoltzmannAttention
    from qboltz.autograd import magnetization as magnetization
    from qboltz.calibrating import calibrate as calibrate
    from qboltz.calibration import TemperatureCalibration as TemperatureCalibration
    from qboltz.circuits import AnnealingCircuit as AnnealingCircuit
    from qboltz.circuits import annealing_circuit as annealing_circuit
    from qboltz.ensemble import SampledEnsemble as SampledEnsemble
    from qboltz.ensemble import Solver as Solver
    from qboltz.ensemble import SpinEnsemble as SpinEnsemble
    from qboltz.errors import BackendNotFoundError as BackendNotFoundError
    from qboltz.errors import BudgetError as BudgetError
    from qboltz.errors import ConvergenceError as ConvergenceError
    from qboltz.errors import JobError as JobError
    from qboltz.errors import SelfTestError as SelfTestError
    from qboltz.errors import TooManySpinsError as TooManySpinsError
    from qboltz.functional import boltzmann_attention as boltzmann_attention
    from qboltz.ising import IsingModel as IsingModel
    from qboltz.machine.backend import Machine as Machine
    from qboltz.machine.options import MachineOptions as MachineOptions
    from qboltz.machine.store import JobStore as JobStore
    from qboltz.modelset import ModelSet as ModelSet
    from qboltz.noise_fit import fit_for as fit_for
    from qboltz.readout import ReadoutErrors as ReadoutErrors
    from qboltz.sampler import AnnealingCircuitSampler as AnnealingCircuitSampler
    from qboltz.schedule import AnnealingSchedule as AnnealingSchedule
    from qboltz.solvers import SOLVERS as SOLVERS
    from qboltz.solvers import make_solver as make_solver
    from qboltz.solvers.annealing import AnnealingSolver as AnnealingSolver
    from qboltz.solvers.exact import ExactSolver as ExactSolver
    from qboltz.solvers.gibbs import GibbsSolver as GibbsSolver
    from qboltz.solvers.mean_field import MeanFieldSolver as MeanFieldSolver
    from qboltz.solvers.statevector import StatevectorSolver as StatevectorSolver
    from qboltz.temperature import Temperatures as Temperatures
    from qboltz.temperature import effective_temperatures as effective_temperatures

_HOME = {
    "BoltzmannAttention": "attention",
    "boltzmann_attention": "functional",
    "magnetization": "autograd",
    "IsingModel": "ising",
    "SpinEnsemble": "ensemble",
    "SampledEnsemble": "ensemble",
    "Solver": "ensemble",
    "AnnealingSchedule": "schedule",
    "AdaptiveSchedule": "adaptive",
    "ModelSet": "modelset",
    "AnnealingCircuitSampler": "sampler",
    "AnnealingCircuit": "circuits",
    "annealing_circuit": "circuits",
    "ExactSolver": "solvers.exact",
    "StatevectorSolver": "solvers.statevector",
    "AnnealingSolver": "solvers.annealing",
    "GibbsSolver": "solvers.gibbs",
    "MeanFieldSolver": "solvers.mean_field",
    "SOLVERS": "solvers",
    "make_solver": "solvers",
    "effective_temperatures": "temperature",
    "Temperatures": "temperature",
    "TemperatureCalibration": "calibration",
    "calibrate": "calibrating",
    "ReadoutErrors": "readout",
    "fit_for": "noise_fit",
    "Machine": "machine.backend",
    "MachineOptions": "machine.options",
    "JobStore": "machine.store",
    "BudgetError": "errors",
    "JobError": "errors",
    "TooManySpinsError": "errors",
    "BackendNotFoundError": "errors",
    "ConvergenceError": "errors",
    "SelfTestError": "errors",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("qboltz")
    if name not in _HOME:
        raise AttributeError(f"module 'qboltz' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"qboltz.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
