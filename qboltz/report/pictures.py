"""Figures as pictures of a page: lines that stay apart in grey, couplings as heat maps and against distance."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from qboltz.experiments.figures import running_mean
from qboltz.report.page import Picture

DPI = 132
#: Where the legend of several panels goes.
ABOVE: dict[str, Any] = {"loc": "outside upper left", "ncols": 7, "frameon": False}
LOOKS: Any = {
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.framealpha": 0.7,
    "lines.markersize": 4,
}
#: Dark and light, solid and broken, with marks: told apart without their colors too.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "marker": "o"},
    {"color": "#d55e00", "linestyle": "--", "marker": "s"},
    {"color": "#0072b2", "linestyle": "-.", "marker": "^"},
    {"color": "#e69f00", "linestyle": (0, (5, 1, 1, 1)), "marker": "D"},
    {"color": "#009e73", "linestyle": (0, (3, 1)), "marker": "v"},
    {"color": "#cc79a7", "linestyle": ":", "marker": "P"},
    {"color": "#888888", "linestyle": (0, (1, 1)), "marker": "X"},
)
#: The same kind of attention looks the same in every figure.
KINDS = ("h+J", "softmax", "softmax+bias", "h+bias", "softmax+mixing", "h-only", "J-only")


@dataclass(frozen=True)
class Band:
    """A line with the interval around it, over ``x``."""

    x: Sequence[float]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def style_of(label: str, number: int = 0) -> dict[str, Any]:
    """The line of a kind of attention, or the ``number``-th line of another figure."""
    return STYLES[(KINDS.index(label) if label in KINDS else number) % len(STYLES)]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, of its own: no window and no global state."""
    return Figure(figsize=(width, height), layout="constrained")


def render(figure: Figure, alt: str) -> Picture:
    """The figure as a PNG of 256 colors: a third of the size, so that a page may have dozens of them."""
    from PIL import Image  # matplotlib writes its PNG files with it

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    width, height = figure.get_size_inches()
    return Picture(small.getvalue(), round(96 * width), round(96 * height), alt)


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str], *, chance: float | None = None
) -> Picture:
    """Quantities of the steps of training, running means of 20 steps, a panel each; gradient norms on a log scale."""
    with matplotlib.rc_context(LOOKS):
        columns = min(3, len(names))
        rows = -(-len(names) // columns)
        figure = new_figure(3.3 * columns, 2.7 * rows)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, name in zip(panels, names, strict=False):
            for number, (label, history) in enumerate(histories.items()):
                known = [record for record in history if isinstance(record.get(name), (int, float))]
                if not known:
                    continue
                looks = style_of("", number) | {"marker": "" if len(known) > 1 else "o"}
                values = running_mean(np.array([record[name] for record in known], dtype=float), 20)
                axis.plot([record["step"] for record in known], values, label=label, **looks)
                if name != "accuracy" and min(values) > 0 and max(values) > 20 * min(values):
                    axis.set_yscale("log")
            axis.set(xlabel="step", ylabel=name.replace("grad_norm", "norm of the gradient").replace("_", " "))
            if name == "accuracy":
                axis.set_ylim(-0.03, 1.03)
                if chance is not None:
                    axis.axhline(chance, color="0.5", linewidth=1, linestyle=(0, (1, 2)), label="chance")
        for axis in panels[len(names) :]:
            axis.set_axis_off()
        figure.legend(
            *panels[names.index("accuracy") if "accuracy" in names else 0].get_legend_handles_labels(), **ABOVE
        )
        last = [f"{label}: loss {history[-1]['loss']:.3f}" for label, history in histories.items() if history]
        return render(figure, f"{', '.join(names)} against the training step; at the end {'; '.join(last)}")


def bands(panels: Mapping[str, Mapping[str, Band]], xlabel: str, *, log_x: bool = False, alt: str = "") -> Picture:
    """Means with intervals over seeds: a panel for each quantity, a line for each label."""
    with matplotlib.rc_context(LOOKS):
        figure = new_figure(9.9 if len(panels) > 1 else 5.5, 3.1)
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (name, lines) in zip(axes, panels.items(), strict=True):
            for number, (label, band) in enumerate(lines.items()):
                _draw_band(axis, band, label, style_of(label, number))
            axis.set(xlabel=xlabel, ylabel=name, xscale="log" if log_x else "linear")
            if not log_x and all(float(x).is_integer() for band in lines.values() for x in band.x):
                axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(*axes[0].get_legend_handles_labels(), **ABOVE)
        return render(figure, alt or f"{' and '.join(panels)} against {xlabel}, one line each for {_listed(panels)}")


def heat_maps(
    matrices: Mapping[str, NDArray[np.float64]], by_distance: Mapping[str, Band], quantity: str = "J"
) -> Picture:
    """Symmetric matrices over pairs of positions, and below them the same numbers against the distance."""
    with matplotlib.rc_context({**LOOKS, "axes.grid": False}):
        columns = max(3, min(5, len(matrices)))
        rows = -(-len(matrices) // columns)
        beside = len(matrices) == 1  # one map and the distances fit into one row
        figure = new_figure(9.9, 2.8 if beside else 2.25 * rows + 2.5)
        grid = figure.add_gridspec(rows + (not beside), columns, height_ratios=[2.25] * rows + [2.5] * (not beside))
        for number, (label, matrix) in enumerate(matrices.items()):
            axis = figure.add_subplot(grid[number // columns, number % columns])
            largest = max(float(np.abs(matrix).max()), 1e-9)
            image = axis.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
            if beside:
                figure.colorbar(image, ax=axis, shrink=0.8)
            axis.set_title(label if beside else f"{label} (to ±{largest:.2f})", fontsize=9)
            axis.set_xlabel("position", fontsize=8)
            for side in (axis.xaxis, axis.yaxis):
                side.set_major_locator(MaxNLocator(5, integer=True))
            # Red and blue are equally dark in grey: negative numbers get a mark.
            below = np.argwhere(matrix < -0.05 * largest)
            axis.plot(below[:, 1], below[:, 0], "_", color="0.1", markersize=3, markeredgewidth=0.8)
        axis = figure.add_subplot(grid[0, 1:] if beside else grid[rows, :])
        for number, (label, band) in enumerate(by_distance.items()):
            _draw_band(axis, band, label, style_of(label, number))
        axis.axhline(0, color="0.5", linewidth=0.8)
        axis.grid(alpha=0.3)
        axis.set(xlabel="distance of the two positions", ylabel=f"mean {quantity}")
        if len(by_distance) > 1:
            axis.legend(ncols=3)
        return render(
            figure, f"{quantity} of every pair of positions as heat maps for {', '.join(matrices)}, and by distance"
        )


def _draw_band(axis: Axes, band: Band, label: str, looks: Mapping[str, Any]) -> None:
    axis.plot(band.x, band.mean, label=label, **looks)
    axis.fill_between(band.x, band.low, band.high, color=looks["color"], alpha=0.15, linewidth=0)


def _listed(panels: Mapping[str, Mapping[str, Band]]) -> str:
    return ", ".join(dict.fromkeys(label for lines in panels.values() for label in lines))
