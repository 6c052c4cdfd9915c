"""Samplers and devices that the user made: any ``BaseSamplerV2``, any ``BackendV2``."""

from __future__ import annotations

import copy
import dataclasses
import sys
import warnings
from typing import Any

import numpy as np
from qiskit.primitives import BackendSamplerV2, BaseSamplerV2, StatevectorSampler
from qiskit.providers import BackendV2

from qboltz.backends.aer import aer_sampler
from qboltz.backends.program import Backend, Program, compile_for
from qboltz.circuits import AnnealingCircuit
from qboltz.seeds import SeedStream, integer_seed


class SamplerBackend(Backend):
    """A sampler that was handed in.

    A sampler with a seed of its own may return the same samples at every call. So the samplers of Aer and Qiskit, and
    any other with an attribute ``seeds`` that is a ``SeedStream``, are given a new seed for every call; the seed they
    were made with becomes that of a solver that has none. Any other sampler is used as it is: its randomness is its
    own, and neither ``seed`` nor ``state_dict`` of the solver reaches it.

    Copies of a solver share the sampler; pickling a solver pickles it.
    """

    def __init__(self, sampler: BaseSamplerV2) -> None:
        super().__init__(type(sampler).__name__)
        self.sampler = sampler
        device = _device(sampler)
        noise = getattr(getattr(device, "options", None), "noise_model", None)
        self.ideal = isinstance(sampler, StatevectorSampler) or (_is_aer(sampler) and noise is None)
        self.billed = is_instance_of(device, "qiskit_ibm_runtime", "IBMBackend")
        seeds, seed = getattr(sampler, "seeds", None), getattr(sampler, "seed", None)
        if isinstance(seeds, SeedStream):
            self.seed = seeds.entropy
        elif isinstance(seed, (int, np.integer)):
            self.seed = int(seed)
            if not (_is_aer(sampler) or type(sampler) is StatevectorSampler):
                warnings.warn(
                    f"{self.label} has the fixed seed {seed}, which cannot be changed from here: every call may return "
                    "the same samples, which freezes the noise of a training run. Make it with seed=None.",
                    stacklevel=4,
                )

    def compile(self, anneal: AnnealingCircuit) -> Program:
        return Program(compile_for(anneal.circuit, _device(self.sampler)), self._reseeded)

    def _reseeded(self, seed: np.random.SeedSequence) -> BaseSamplerV2:
        sampler = self.sampler
        if _is_aer(sampler):
            options = dataclasses.asdict(sampler.options)
            return aer_sampler(_device(sampler), seed, default_shots=sampler.default_shots, options=options)
        if type(sampler) is StatevectorSampler:
            # A generator: with an integer every row of a pub would start from the same seed.
            return StatevectorSampler(default_shots=sampler.default_shots, seed=np.random.default_rng(seed))
        if type(sampler) is BackendSamplerV2 and hasattr(sampler.backend.options, "seed_simulator"):
            return backend_sampler(sampler.backend, seed, dataclasses.asdict(sampler.options))
        if isinstance(getattr(sampler, "seeds", None), SeedStream):
            other = copy.copy(sampler)
            other.seeds = SeedStream(integer_seed(seed))
            return other
        return sampler

    def __deepcopy__(self, memo: dict[int, Any]) -> SamplerBackend:
        return self


class DeviceBackend(Backend):
    """A ``BackendV2`` of any provider, through Qiskit's generic ``BackendSamplerV2``."""

    ideal = False

    def __init__(self, device: BackendV2) -> None:
        super().__init__(device.name or type(device).__name__)
        self.device = device
        # What takes the seed of a simulator is one; anything else may be a machine.
        self.billed = not hasattr(device.options, "seed_simulator")

    def compile(self, anneal: AnnealingCircuit) -> Program:
        device = self.device
        circuit = compile_for(anneal.circuit, device)
        if self.billed:
            sampler = BackendSamplerV2(backend=device)
            return Program(circuit, lambda seed: sampler)
        return Program(circuit, lambda seed: backend_sampler(device, seed, {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceBackend:
        return self


def backend_sampler(device: BackendV2, seed: np.random.SeedSequence, options: dict[str, Any]) -> BaseSamplerV2:
    """Qiskit's generic sampler over a simulator, for one run."""
    # 32 bits: Qiskit's own simulator hands the seed to a generator that takes no more.
    short_seed = int(seed.generate_state(1, np.uint32)[0])
    return BackendSamplerV2(backend=device, options={**options, "seed_simulator": short_seed})


def is_instance_of(thing: object, module: str, name: str) -> bool:
    """``isinstance`` without an import: of a class that nobody has imported there are no objects."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def _is_aer(sampler: BaseSamplerV2) -> bool:
    return is_instance_of(sampler, "qiskit_aer.primitives", "SamplerV2")


def _device(sampler: BaseSamplerV2) -> BackendV2 | None:
    """What a sampler runs on, where it tells: hidden in Aer, a property in Qiskit, a method in the runtime client."""
    device = sampler._backend if _is_aer(sampler) else getattr(sampler, "backend", None)
    if callable(device) and not isinstance(device, BackendV2):
        device = device()
    return device if isinstance(device, BackendV2) else None
