"""Qiskit Aer, the simulator: the honest stand-in for a machine."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from qiskit.primitives import BaseSamplerV2
from qiskit.providers import BackendV2

from qboltz.backends.program import Backend, Program, check_num_spins, compile_for
from qboltz.circuits import AnnealingCircuit
from qboltz.seeds import integer_seed


def num_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def aer_options() -> dict[str, Any]:
    """The settings under which Aer samples many bindings of one small circuit fastest.

    One thread per circuit instead of all threads inside each circuit, and parameters bound in Aer's own code.
    """
    return {
        "method": "statevector",
        "max_parallel_experiments": num_cores(),
        "runtime_parameter_bind_enable": True,
    }


def aer_sampler(simulator: BackendV2, seed: np.random.SeedSequence, **options: Any) -> BaseSamplerV2:
    """A sampler for one run: Aer's ``SamplerV2(seed)`` repeats the same samples at every call.

    Row ``i`` of a pub uses ``seed + 2113 i``, so seeds come from a ``SeedSequence`` and not from a counter,
    whose rows would meet.
    """
    from qiskit_aer.primitives import SamplerV2

    return SamplerV2.from_backend(simulator, seed=integer_seed(seed), **options)


class AerBackend(Backend):
    """The ideal simulator at its best settings, or an ``AerSimulator`` with the settings it was given."""

    def __init__(self, simulator: BackendV2 | None = None) -> None:
        super().__init__("aer_simulator" if simulator is None else simulator.name)
        self._given = simulator
        self.ideal = simulator is None or simulator.options.noise_model is None

    def compile(self, anneal: AnnealingCircuit) -> Program:
        from qiskit_aer import AerSimulator

        simulator = AerSimulator(**aer_options()) if self._given is None else self._given
        check_num_spins(anneal.num_spins, simulator.num_qubits, f"{self.label} in the memory of this machine")
        return Program(compile_for(anneal.circuit, simulator), lambda seed: aer_sampler(simulator, seed))
