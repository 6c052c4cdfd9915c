r"""Before a backend is trusted: a few small circuits whose answers are known.

The reference is a dense statevector of three spins in numpy that shares no code with the circuit builder or
the simulator. Fields and couplings of the rows are all different, so that exchanged parameters, qubits, bits,
signs or rows and a binding that sticks to its first values all change the answer.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from qboltz.backends.program import Backend, SampleRequest
from qboltz.errors import SelfTestError
from qboltz.schedule import AnnealingSchedule

NUM_SPINS = 3
SHOTS = 2048
FIELDS = np.array([[1.2, -0.35, 0.1], [-0.5, 0.25, -1.3], [0.15, 0.9, -0.4], [-1.0, 0.3, 0.6]])
PAIRS = np.array([[0.7, -0.2, 0.05], [0.3, -0.6, -0.1], [-0.45, 0.12, 0.8], [0.5, 0.9, -0.25]])  # 01, 02, 12
#: A correct ideal sampler fails with less than this probability (once per start of a solver).
FALSE_ALARM = 1e-9
#: Least correlation between the 24 measured moments and the exact ones on a noisy backend.
MIN_CORRELATION = 0.8


def self_test(backend: Backend) -> None:
    """Sample four known distributions of three spins on ``backend``; a correct backend passes.

    * An ideal backend: every one of the 32 frequencies ``f`` must satisfy ``S KL(f || p) <= log(64 / 1e-9)``,
      a bound (Chernoff) that correct samples break with probability below ``1e-9`` for any number of shots
      ``S``.
    * A noisy backend: noise shrinks moments and shifts them a little, it does not exchange them. The
      correlation of the 24 moments ``<s_j>``, ``<s_j s_k>`` with the exact ones must be at least 0.8. With
      three tenths of the signal left and every ``<s_j>`` shifted by 0.05 it was above 0.86 in each of 2000
      trials; each of the mistakes listed above brings it below 0.6.

    Raises:
        SelfTestError: the samples contradict the known answers.
    """
    schedule = AnnealingSchedule.fitted(2)
    exact = dense_probabilities(FIELDS, PAIRS, schedule)
    spins = _sample(backend, schedule)
    complaint = _ideal_complaint(spins, exact) if backend.ideal else _noisy_complaint(spins, exact)
    if complaint:
        raise SelfTestError(
            f"{backend.label} returned wrong samples for a circuit with a known answer: {complaint} "
            "Its results cannot be used. Usual causes: parameters bound in the wrong order or only once, a reversed "
            "bit order, a compiler that moved qubits without moving the measurements, or noise that leaves no signal."
        )


def dense_probabilities(
    fields: NDArray[np.float64], pairs: NDArray[np.float64], schedule: AnnealingSchedule
) -> NDArray[np.float64]:
    """``(R, 8)`` populations of the anneal of three spins; fields ``(R, 3)``, couplings 01, 02, 12 as ``(R, 3)``."""
    s0, s1, s2 = spins = 1 - 2 * (np.arange(8) >> np.arange(3)[:, None] & 1)
    field_energy = fields @ spins
    pair_energy = pairs @ np.stack([s0 * s1, s0 * s2, s1 * s2])
    amplitudes = np.full(field_energy.shape, 8**-0.5, dtype=complex)
    flip = np.array([[0, 1], [1, 0]])
    for layer in schedule.layers():
        phase = layer.field_angle * field_energy + layer.coupling_angle * pair_energy
        rotation = math.cos(layer.mixer_angle) * np.eye(2) + 1j * math.sin(layer.mixer_angle) * flip
        amplitudes = (amplitudes * np.exp(1j * phase)) @ np.kron(np.kron(rotation, rotation), rotation).T
    populations: NDArray[np.float64] = np.abs(amplitudes) ** 2
    return populations


def _sample(backend: Backend, schedule: AnnealingSchedule) -> NDArray[np.int8]:
    couplings = np.zeros((len(PAIRS), NUM_SPINS, NUM_SPINS))
    first, second = np.array([0, 0, 1]), np.array([1, 2, 2])
    couplings[:, first, second] = couplings[:, second, first] = PAIRS
    seed = np.random.SeedSequence(2113)  # always the same: a pass on a simulator is repeatable
    return backend.sample(SampleRequest(schedule, FIELDS, couplings, SHOTS, seed))


def _ideal_complaint(spins: NDArray[np.int8], exact: NDArray[np.float64]) -> str:
    numbers = ((spins < 0) << np.arange(NUM_SPINS)).sum(-1)
    frequencies = np.stack([np.bincount(row, minlength=exact.shape[1]) for row in numbers]) / spins.shape[1]
    excess = spins.shape[1] * _binary_divergence(frequencies, exact)
    bound = math.log(2 * exact.size / FALSE_ALARM)
    row, number = np.unravel_index(np.argmax(excess), excess.shape)
    if excess[row, number] <= bound:
        return ""
    return (
        f"in model {row} the configuration {number} has frequency {frequencies[row, number]:.3f} instead of "
        f"{exact[row, number]:.3f}."
    )


def _binary_divergence(f: NDArray[np.float64], p: NDArray[np.float64]) -> NDArray[np.float64]:
    """``KL(f || p)`` of a coin, with ``0 log 0 = 0``."""
    p = np.clip(p, 1e-15, 1 - 1e-15)
    tiny = np.finfo(float).tiny
    divergence: NDArray[np.float64] = f * np.log(np.maximum(f, tiny) / p)
    divergence += (1 - f) * np.log(np.maximum(1 - f, tiny) / (1 - p))
    return divergence


def _noisy_complaint(spins: NDArray[np.int8], exact: NDArray[np.float64]) -> str:
    table = (1 - 2 * (np.arange(8)[:, None] >> np.arange(NUM_SPINS) & 1)).astype(np.float64)
    expected = np.matmul(exact, _monomials(table))
    measured = _monomials(spins.astype(np.float64)).mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):  # samples without any spread: NaN, and no pass
        correlation = np.corrcoef(measured.ravel(), expected.ravel())[0, 1]
    if correlation >= MIN_CORRELATION:
        return ""
    return f"the moments of four models correlate with the exact ones by {correlation:.2f} only."


def _monomials(spins: NDArray[np.float64]) -> NDArray[np.float64]:
    """``s_0, s_1, s_2, s_0 s_1, s_0 s_2, s_1 s_2`` along the last axis."""
    s0, s1, s2 = np.moveaxis(spins, -1, 0)
    return np.stack([s0, s1, s2, s0 * s1, s0 * s2, s1 * s2], axis=-1)
