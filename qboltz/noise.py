r"""Noise of annealing circuits, cheap enough to fit angles through: depolarizing gates as random Pauli paths.

A depolarizing two-qubit gate is followed, with probability :math:`\tfrac{15}{16} \lambda`, by one of the 15 Pauli
errors on its two qubits. No simulation of density matrices is needed for that. Let an ``X`` (or ``Y``) on spin ``j``
travel to the end of the circuit: it passes every mixer, turns the sign of the phases that follow on ``j``, and flips
the measured spin. A ``Z`` commutes with all phases of its layer and is itself a phase,
:math:`Z = -i\, e^{i \pi/2\, Z}`. So one path of errors is one anneal with other angles, and the batched simulator runs
thousands of them at once, with gradients.

A pair is coupled by two or three CX and a phase. A depolarizing error of two qubits is the same before and after any
unitary on these two, so that all of them make one, after the phase: :math:`1 - \lambda = \prod_i (1 - \lambda_i)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qboltz.readout import ReadoutErrors, misread
from qboltz.simulator import Angles, Anneals, probabilities


class NoisyStep(NamedTuple):
    """Two spins that meet, and the depolarizing probability of all gates between them."""

    first: int
    second: int
    depolarizing: float


@dataclass(frozen=True, eq=False)
class AnnealNoise:
    """Noise of the anneals of ``num_spins`` spins on some qubits.

    Attributes:
        num_spins: ``n``.
        steps: of the coupled layers, in order of time; layer number ``c`` of those with couplings runs
            ``steps[c % len(steps)]`` (a swap network goes back the way it came).
        readouts: readout errors of the spins after ``c`` coupled layers, ``readouts[c % len(readouts)]``.
        num_gates: two-qubit gates of one coupled layer.
        gate_error: mean error of a two-qubit gate (``1 -`` average fidelity).
        qubits: physical qubits, or empty.
    """

    num_spins: int
    steps: tuple[tuple[NoisyStep, ...], ...]
    readouts: tuple[ReadoutErrors, ...]
    num_gates: int
    gate_error: float
    qubits: tuple[int, ...] = ()

    def readout(self, coupled: Sequence[bool]) -> ReadoutErrors:
        """Of the spins where they are measured."""
        return self.readouts[sum(coupled) % len(self.readouts)]

    def paths(self, coupled: Sequence[bool], models: int, paths: int, seed: int) -> ErrorPaths:
        """Draw ``paths`` random paths with at least one error for each of ``models`` models.

        Args:
            coupled: which layers have couplings.
            models: every one gets paths of its own, so that their chance does not add up over the models.
            paths: per model.
            seed: of the draws. Equal ones make a fit see the same paths at all angles.
        """
        layers = [
            self.steps[sum(coupled[:k]) % len(self.steps)] if has_couplings else ()
            for k, has_couplings in enumerate(coupled)
        ]
        chances = np.array([step.depolarizing for steps in layers for step in steps]) * 15 / 16
        clean = float(np.prod(1 - chances))
        count = models * paths
        n, p = self.num_spins, len(layers)
        signs = np.ones((p, count, n))
        pair_signs = np.ones((p, count, n, n))
        phases = np.zeros((p, count, n))
        x = np.zeros((count, n), dtype=np.int64)
        if clean < 1:
            generator = np.random.default_rng(seed)
            hits = _hits(chances, count, generator)
            paulis = generator.integers(1, 16, hits.shape) * hits
            events = iter(paulis.T)
            for k, steps in enumerate(layers):
                signs[k] = 1 - 2 * x
                for first, second, _ in steps:
                    sign = 1 - 2 * (x[:, first] ^ x[:, second])
                    pair_signs[k, :, first, second] = pair_signs[k, :, second, first] = sign
                    pauli = next(events)
                    x[:, first] ^= pauli & 1
                    x[:, second] ^= pauli >> 1 & 1
                    phases[k, :, first] += math.pi / 2 * (pauli >> 2 & 1)
                    phases[k, :, second] += math.pi / 2 * (pauli >> 3 & 1)
        flips = (x << np.arange(n)).sum(-1)
        return ErrorPaths(clean, paths, *map(torch.from_numpy, (signs, pair_signs, phases, flips)))


def _hits(chances: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Which of the gates fail in each path, ``(count, gates)``, given that one does."""
    none_before = np.concatenate([[1.0], np.cumprod(1 - chances)])
    first = np.searchsorted(1 - none_before[1:], generator.random(count) * (1 - none_before[-1]), side="right")
    first = first.clip(max=len(chances) - 1)
    number = np.arange(len(chances))
    later = (generator.random((count, len(chances))) < chances) & (number > first[:, None])
    hits: NDArray[np.bool_] = later | (number == first[:, None])
    return hits


@dataclass(frozen=True, eq=False)
class ErrorPaths:
    """Random errors of ``N`` models' anneals, as changes of their angles.

    Attributes:
        clean: probability of no error at all.
        paths: ``T``, paths with an error, per model.
        field_signs: ``(p, N T, n)``.
        coupling_signs: ``(p, N T, n, n)``.
        phases: added to the field angles, ``(p, N T, n)``.
        flips: ``(N T,)``, measured spins that are flipped, as bits.
    """

    clean: float
    paths: int
    field_signs: Tensor
    coupling_signs: Tensor
    phases: Tensor
    flips: Tensor


def noisy_populations(
    fields: Tensor, couplings: Tensor, angles: Angles, paths: ErrorPaths, readout: ReadoutErrors | None, parts: int = 1
) -> Tensor:
    """Populations under noise, averaged over the paths: ``(parts, N, 2**n)``.

    The paths are shared out over independent ``parts``: a product of errors of two of them is free of the bias that the
    square of one has from the finite number of paths. Differentiable in all floating point arguments.

    Args:
        fields: ``(N, n)``, float64.
        couplings: ``(N, n, n)``.
        angles: of the anneal.
        paths: drawn for ``N`` models.
        readout: errors of the readout, or ``None`` if they are corrected.
        parts: must divide the number of paths.
    """
    num_models, n = fields.shape
    owner = torch.arange(num_models)
    populations = probabilities(Anneals.of(fields, couplings, owner, angles)).expand(parts, -1, -1)
    if paths.clean < 1:
        count = paths.paths
        layers = [values.view(-1, *[1] * fields.dim()) for values in (angles.fields, angles.couplings)]
        h, J = fields.repeat_interleave(count, 0), couplings.repeat_interleave(count, 0)
        changed = Anneals(
            layers[0] * paths.field_signs * h + paths.phases,
            layers[1].unsqueeze(-1) * paths.coupling_signs * J,
            torch.arange(num_models * count),
            angles.mixers,
        )
        numbers = torch.arange(2**n) ^ paths.flips.unsqueeze(-1)
        failed = probabilities(changed).gather(-1, numbers).view(num_models, parts, -1, 2**n).mean(-2)
        populations = paths.clean * populations + (1 - paths.clean) * failed.transpose(0, 1)
    if readout is None:
        return populations
    gain, offset = readout.for_groups((1, num_models, n), fields)
    return misread(populations, gain, offset)
