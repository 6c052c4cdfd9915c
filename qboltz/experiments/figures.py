"""Pictures of a run: learning curves of the models that are compared, and the couplings that were learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from qboltz.spins import pair_indices, to_numpy


def save_learning_curves(
    path: Path, histories: Mapping[str, Sequence[Mapping[str, Any]]], *, chance: float | None = None
) -> None:
    """Loss and accuracy on the training batches against the step, running means of 20 steps."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, quantity in zip(axes, ("loss", "accuracy"), strict=True):
        for label, history in histories.items():
            values = np.array([record[quantity] for record in history])
            axis.plot([record["step"] for record in history], running_mean(values, 20), label=label)
        axis.set(xlabel="step", ylabel=f"{quantity} (training batches)")
        axis.grid(alpha=0.3)
    if chance is not None:
        axes[1].axhline(chance, color="gray", linestyle="--", label="chance")
    axes[1].set_ylim(-0.02, 1.02)
    axes[1].legend()
    figure.savefig(path, dpi=120)


def save_couplings(path: Path, couplings: Tensor) -> None:
    """``J`` of each head, ``(H, T, T)``, as a heat map, and every pair against its distance."""
    matrices = to_numpy(couplings)
    heads, length = matrices.shape[:2]
    figure = Figure(figsize=(8, 3.6 * heads), layout="constrained")
    axes = figure.subplots(heads, 2, squeeze=False)
    largest = max(float(np.abs(matrices).max()), 1e-9)
    for head, (J, (map_axis, distance_axis)) in enumerate(zip(matrices, axes, strict=True)):
        image = map_axis.imshow(J, cmap="RdBu_r", vmin=-largest, vmax=largest)
        figure.colorbar(image, ax=map_axis, label="J")
        map_axis.set(xlabel="key position", ylabel="key position", title=f"couplings, head {head}")
        if length > 1:
            distance, value = pairs_by_distance(J)
            distance_axis.plot(distance, value, ".", alpha=0.5, label="pairs")
            means = [value[distance == d].mean() for d in range(1, length)]
            distance_axis.plot(range(1, length), means, "-", label="mean")
            distance_axis.legend()
        distance_axis.axhline(0, color="gray", linewidth=0.8)
        distance_axis.set(xlabel="distance |k - l|", ylabel="J", title=f"by distance, head {head}")
    figure.savefig(path, dpi=120)


def pairs_by_distance(J: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """``|k - l|`` and ``J_kl`` of every pair of one ``(T, T)`` matrix."""
    first, second = pair_indices(J.shape[0])
    return second - first, J[first, second]


def running_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Mean of each value and up to ``window - 1`` before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    mean: NDArray[np.float64] = (sums[stop] - sums[start]) / (stop - start)
    return mean


def save_magnetizations(path: Path, exact: Tensor, measured: Mapping[str, tuple[Tensor, Tensor]], name: str) -> None:
    """Measured magnetizations over the exact ones, a panel for each estimator.

    Args:
        path: the file.
        exact: magnetizations.
        measured: by estimator, magnetizations and standard errors, of the same shape.
        name: of where they were measured.
    """
    figure = Figure(figsize=(4.5 * len(measured), 4.5), layout="constrained")
    axes = figure.subplots(1, len(measured), sharex=True, sharey=True, squeeze=False)
    for axis, (estimator, (m, error)) in zip(axes[0], measured.items(), strict=True):
        axis.axline((0, 0), slope=1, color="gray", linewidth=0.8)
        axis.errorbar(exact.flatten(), m.flatten(), error.flatten(), fmt=".", elinewidth=0.8, markersize=4)
        axis.set(title=estimator, xlabel="exact magnetization", ylabel=name)
    figure.savefig(path, dpi=150)
