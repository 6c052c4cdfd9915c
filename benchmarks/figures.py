"""Figures of docs/dqa.md, made from the records and from the schedules themselves.

python benchmarks/figures.py [--only NAME ...] [--folder DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import torch
from fidelity_records import CELLS, fitted, merged, recorded_errors, recorded_names, records, value
from figure_style import LOOKS, STYLES, curve, legend, rivals
from matplotlib.figure import Figure
from numpy.typing import NDArray

from qboltz import AnnealingSchedule, IsingModel, StatevectorSolver

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def ramp(num_layers: int, anneal_time: float) -> AnnealingSchedule:
    """A linear ramp with one scale for both phases, chosen so that `beta_fields` is 1."""
    fraction = (np.arange(num_layers) + 0.5) / num_layers
    mixers = tuple(anneal_time / num_layers * (1 - fraction))
    unit = AnnealingSchedule(tuple(fraction), tuple(fraction), mixers)
    phases = tuple(fraction / unit.beta_fields)
    return AnnealingSchedule(phases, phases, mixers)


def temperature() -> Figure:
    """`beta_J` and `K_hJ` of ramps whose `beta_h` is 1; and `K_hJ` against depth, of linear and of fitted schedules."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    times = np.linspace(0.8, 8, 200)
    ramps = [ramp(400, time) for time in times]
    couplings = np.array([schedule.beta_couplings for schedule in ramps])
    left.axhline(1, color="0.6", linewidth=3, alpha=0.5, label=r"$\beta_h$, set to 1")
    left.plot(times, couplings, color="0", linestyle="--", label=r"$\beta_J$")
    left.plot(times, [schedule.k_hj for schedule in ramps], color="0", label=r"$K_{hJ}$")
    cross = crossing(times, couplings)
    left.plot(cross, 1, "o", color="0")
    left.annotate(f"{cross:.2f}", (cross, 1), textcoords="offset points", xytext=(4, 5))
    left.set(xlabel=r"anneal time $A_0\tau$", ylabel="Boltzmann: 1", title="one ramp for fields and couplings")
    left.legend()
    depths = range(1, 9)
    calibrated = [AnnealingSchedule.linear(p).k_hj for p in depths]
    right.plot(depths, calibrated, label=r"linear, $\beta_h = \beta_J = 1$", **STYLES["linear"])
    for name, style in (("weak", "adaptive"), ("broad", "fitted")):
        values = [AnnealingSchedule.fitted(p, name).k_hj for p in depths]
        right.plot(depths, values, label=f"fitted, {name}", **STYLES[style])
    right.axhline(1, color="0.6", linewidth=3, alpha=0.5)
    right.set(xlabel="layers p", ylabel=r"$K_{hJ}$ (Boltzmann: 1)", title="what couplings do to magnetizations")
    right.legend()
    return figure


def crossing(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Where the curve first passes 1."""
    first = int(np.flatnonzero(np.diff(np.sign(y - 1)))[0])
    share = (1 - y[first]) / (y[first + 1] - y[first])
    return float(x[first] + share * (x[first + 1] - x[first]))


def response() -> Figure:
    """Two spins, a field on the second: what the first one learns of it through `J`."""
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axis = figure.subplots()
    strengths = torch.linspace(-1, 1, 81, dtype=torch.float64)
    fields = torch.tensor([0.0, 0.5], dtype=torch.float64).expand(len(strengths), 2)
    J = torch.zeros(len(strengths), 2, 2, dtype=torch.float64)
    J[:, 0, 1] = J[:, 1, 0] = strengths
    model = IsingModel(fields, J)
    for depth, style in ((1, "linear"), (2, "fitted"), (4, "adaptive")):
        solver = StatevectorSolver(AnnealingSchedule.fitted(depth, "weak"), estimator="plain")
        axis.plot(
            strengths, solver.solve(model).magnetization()[:, 0], label=f"p = {depth}", markevery=10, **STYLES[style]
        )
    axis.plot(strengths, torch.tanh(strengths) * np.tanh(0.5), color="0.6", linewidth=4, alpha=0.5, label="Boltzmann")
    axis.set(xlabel=r"$J_{12}$", ylabel=r"$\langle s_1 \rangle$", title=r"$h_1 = 0$, $h_2 = 0.5$")
    axis.legend()
    return figure


def depth() -> Figure:
    """Error against depth in every cell, n = 8, beside mean field and the noise of exact samples."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    panels = figure.subplots(2, 3)
    for cell, axis in zip(CELLS, panels.flat, strict=False):
        others = merged(8, cell, None)
        for label, name in (("linear", "linear"), ("fitted", fitted(cell)), ("adaptive", "adaptive")):
            found = {p: value(merged(8, cell, p), name, "conditional") for p in range(1, 9)}
            curve(axis, found, label)
        rivals(axis, others, "magnetization")
        title = rf"$\sigma_h$ = {cell[0]}, $\sigma_J$ = {cell[1]}, fitted: {fitted(cell).split(', ')[1]}"
        axis.set(title=title, xlabel="layers p")
    legend(panels.flat[0], panels.flat[-1])
    for row in panels:
        row[0].set_ylabel("rms error of magnetizations, conditional")
    return figure


def trained() -> Figure:
    """Error of the attention weights against depth on models recorded from trained attention."""
    names = recorded_names()
    rows = len(names) // 3 + 1  # one panel at least is left for the legend
    figure = Figure(figsize=(10, 2.8 * rows), layout="constrained")
    panels = figure.subplots(rows, 3, squeeze=False)
    for axis in panels.flat[len(names) :]:
        axis.set_axis_off()
    for name, axis in zip(names, panels.flat, strict=False):
        shown = (("linear", "linear"), ("fitted", "fitted, broad"), ("adaptive", "adaptive, moments"))
        for label, schedule in shown:
            by_depth = {
                p: value(recorded_errors(name, p), schedule, "conditional", "attention")
                for p in ((2, 4, 6, 8) if label == "adaptive" else range(1, 9))
            }
            curve(axis, by_depth, label)
        rivals(axis, recorded_errors(name, None), "attention")
        spins = next(r["num_spins"] for r in records("recorded") if r["name"] == name)
        axis.set(title=f"{name}, n = {spins}", xlabel="layers p")
    legend(panels.flat[0], panels.flat[-1])
    for row in panels:
        row[0].set_ylabel("total variation of the weights")
    return figure


def controls() -> Figure:
    """256 samples from circuits and from what needs no circuit, conditional estimator, n = 8."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axis = figure.subplots()
    shown = [
        ("fitted, p = 4", "fitted", "conditional", "256", "^", "0.35"),
        ("adaptive, p = 4", "adaptive", "conditional", "256", "o", "0.0"),
        ("spins of the fields alone", "independent spins", "conditional", "256", "v", "1.0"),
        ("random spins, one sweep", "random spins", "conditional polished", "256", "D", "1.0"),
        ("Gibbs, one sample a chain", "Gibbs, a chain per sample", "conditional", "256", "s", "0.7"),
        ("exact samples", "exact samples", "conditional", "256", "*", "1.0"),
        ("naive mean field", "mean field, naive", "", "infinite", "x", "0.0"),
        ("TAP", "mean field, tap", "", "infinite", "+", "0.0"),
    ]
    for index, (label, name, kind, samples, mark, shade) in enumerate(shown):
        points = []
        for place, cell in enumerate(CELLS):
            source = merged(8, cell, 4 if name in ("fitted", "adaptive") else None)
            found = value(source, fitted(cell) if name == "fitted" else name, kind, samples=samples)
            if found is not None:
                points.append((place + 0.09 * (index - 3.5), found[0], found[1]))
        if not points:  # the grid is not complete
            continue
        x, y, e = np.array(points).T
        axis.errorbar(x, y, e, fmt=mark, color="0", markerfacecolor=shade, markersize=6, linewidth=0.8, label=label)
    axis.set_xticks(range(len(CELLS)), [rf"$\sigma_h$ = {h}, $\sigma_J$ = {J}" for h, J in CELLS])
    axis.set(yscale="log", ylabel="rms error of magnetizations")
    axis.legend(ncols=2)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "temperature": temperature,
    "response": response,
    "depth": depth,
    "controls": controls,
    "trained": trained,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), metavar="NAME")
    parser.add_argument("--folder", type=Path, default=IMAGES)
    options = parser.parse_args()
    matplotlib.rcParams.update(LOOKS)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        # Without the version of matplotlib in the file, equal records give equal bytes.
        FIGURES[name]().savefig(options.folder / f"dqa_{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
