"""The couplings of a model, as heat maps and against distance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qboltz.experiments.figures import pairs_by_distance
from qboltz.experiments.paired import intervals
from qboltz.report.page import Html, figure, paragraph
from qboltz.report.pictures import Band, heat_maps
from qboltz.report.run_folder import RunFolder
from qboltz.spins import pair_indices, to_numpy


def couplings_of_run(run: RunFolder) -> list[Html]:
    """``J`` of every head, and what bounds the fields beside it."""
    attention = run.model.attention
    step = run.checkpoint["step"] if run.checkpoint is not None else 0
    scale = ""
    if attention.logit_scale is not None and run.has_spins:
        scales = ", ".join(f"{value:.2f}" for value in attention.logit_scale.exp().tolist())
        scale = f" Fields are at most {scales} in size{' (by head)' if attention.num_heads > 1 else ''}."
    if attention.coupling_weights is None:
        return [paragraph(f"The variant {run.args.variant} has no couplings.{scale}")]
    heads = to_numpy(attention.couplings)
    labels = ["J"] if len(heads) == 1 else [f"J, head {head}" for head in range(len(heads))]
    matrices = dict(zip(labels, heads, strict=True))
    lines = {label: _spread(J) for label, J in matrices.items() if len(J) > 1}
    caption = (
        "Couplings between key positions (red attracts, blue, marked with a dash, repels), and their mean "
        "at each distance with the range of the pairs."
    )
    start = f"{run.args.coupling_init:g} between neighbors and 0 elsewhere"
    said = f"Of the checkpoint at step {step}; the run started with {start}."
    return [paragraph(f"{said}{scale}"), figure(heat_maps(matrices, lines), caption)]


def couplings_of_grid(pairs: Mapping[str, Sequence[Sequence[float]]]) -> list[Html]:
    """Numbers over pairs, ``(seeds, pairs)`` for each kind of attention: mean over seeds, intervals by distance."""
    matrices, lines = {}, {}
    for kind, rows in pairs.items():
        sample = np.asarray(rows, dtype=float)
        length = matrix_length(sample.shape[1])
        matrices[kind] = _matrix(sample.mean(0), length)
        if length > 1:
            lines[kind] = _by_distance(sample, length)
    caption = (
        "Learned numbers over pairs of positions, J or what a rival has in its place: mean over seeds (blue, marked "
        "with a dash, is negative), and below their mean at each distance with 95 % intervals over seeds."
    )
    return [figure(heat_maps(matrices, lines, "number of a pair"), caption)]


def matrix_length(pairs: int) -> int:
    """``T`` with ``T (T - 1) / 2 = pairs``.

    Raises:
        ValueError: there is none.
    """
    length = (1 + math.isqrt(1 + 8 * pairs)) // 2
    if length * (length - 1) // 2 != pairs:
        raise ValueError(f"pairs must be T (T - 1) / 2 numbers, got {pairs}.")
    return length


def _matrix(pairs: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    matrix = np.zeros((length, length))
    first, second = pair_indices(length)
    matrix[first, second] = matrix[second, first] = pairs
    return matrix


def _by_distance(sample: NDArray[np.float64], length: int) -> Band:
    first, second = pair_indices(length)
    means = np.stack([sample[:, second - first == d].mean(1) for d in range(1, length)], axis=1)
    return Band(range(1, length), *intervals(means))


def _spread(J: NDArray[np.float64]) -> Band:
    distance, value = pairs_by_distance(J)
    groups = [value[distance == d] for d in range(1, len(J))]
    mean, low, high = (np.array([float(of(group)) for group in groups]) for of in (np.mean, np.min, np.max))
    return Band(range(1, len(J)), mean, low, high)
