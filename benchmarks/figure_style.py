"""What the figures share: shades that stay apart in grey, and the lines of one panel."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity_records import MEAN_FIELDS, value
from matplotlib.axes import Axes

#: Shades and marks that stay apart in grey.
STYLES = {
    "linear": {"color": "0.6", "linestyle": ":", "marker": "s"},
    "fitted": {"color": "0.35", "linestyle": "--", "marker": "^"},
    "adaptive": {"color": "0.0", "linestyle": "-", "marker": "o"},
}
LOOKS = {"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "lines.markersize": 4, "legend.fontsize": 8}


def legend(source: Axes, place: Axes) -> None:
    """What the lines of a panel mean, in the place of an empty one."""
    place.set_axis_off()
    place.legend(*source.get_legend_handles_labels(), loc="center")


def curve(axis: Axes, found: dict[int, list[float] | None], label: str) -> None:
    known = {p: number for p, number in found.items() if number is not None}
    if not known:  # the grid is not complete
        return
    values, errors = (np.array([number[i] for number in known.values()]) for i in (0, 1))
    axis.errorbar(list(known), values, errors, label=label, **STYLES[label])


def rivals(axis: Axes, errors: dict[str, Any], quantity: str) -> None:
    """After the curves of a panel, horizontal lines: mean field and 256 exact samples."""
    for method, style in (("naive", (0, (1, 1))), ("tap", (0, (5, 1)))):
        found = value(errors, f"mean field, {method}", "", quantity)
        if found is not None:
            axis.axhline(found[0], color="0.45", linewidth=1, linestyle=style, label=MEAN_FIELDS[method])
    heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axis.lines])
    axis.set(yscale="log", ylim=(0.7 * heights.min(), 1.4 * heights.max()))
    noise = value(errors, "exact samples", "conditional", quantity, "256")
    if noise is not None:
        axis.axhspan(1e-9, noise[0], color="0.85", zorder=0, label="below the noise of 256 exact samples")
