"""Figures of the evidence, made from the records: intervals over seeds, shades that stay apart in grey.

python benchmarks/evidence_figures.py [--only NAME ...] [--folder DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import planted_couplings
import ring_choice
from evidence import (
    BRACKET_LENGTHS,
    TEXT_LENGTHS,
    Record,
    accuracies,
    across,
    brackets,
    by_distance,
    find,
    one,
    pair_matrix,
    percent_gap,
    point_gap,
    text,
)
from figure_style import LOOKS
from joint_choice import CASES
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from paired import Interval, interval

IMAGES = Path(__file__).parents[1] / "docs" / "images"

#: Of every kind of attention: couplings black, classical rivals grey.
KIND_STYLES = {
    "softmax": {"color": "0.55", "linestyle": "-", "marker": "s"},
    "softmax+bias": {"color": "0.55", "linestyle": "--", "marker": "v"},
    "softmax+mixing": {"color": "0.3", "linestyle": ":", "marker": "^"},
    "h-only": {"color": "0.3", "linestyle": "--", "marker": "D"},
    "h+bias": {"color": "0.3", "linestyle": "-.", "marker": "P"},
    "J-only": {"color": "0.7", "linestyle": ":", "marker": "x"},
    "h+J": {"color": "0.0", "linestyle": "-", "marker": "o"},
}
COMPARED = [kind for kind in KIND_STYLES if kind not in ("softmax", "J-only")]


def with_intervals(axis: Axes, found: dict[int, Interval], kind: str, shift: float = 0.0, name: str = "") -> None:
    """Means with their intervals; a small shift keeps bars of several kinds apart."""
    if not found:
        return
    x = np.array(list(found)) + shift
    mean = np.array([value.mean for value in found.values()])
    bars = np.array([[value.mean - value.low, value.high - value.mean] for value in found.values()]).T
    axis.errorbar(x, mean, bars, capsize=2, linewidth=1, label=name or kind, **KIND_STYLES[kind])


def gaps(
    axis: Axes,
    records: Callable[[int, str], Record | None],
    lengths: Sequence[int],
    measure: Callable[[Record, Record], Interval],
) -> None:
    """Paired differences of the kinds to softmax against length."""
    for number, kind in enumerate(COMPARED):
        with_intervals(axis, across(records, lengths, kind, measure), kind, 0.12 * (number - 2))
    axis.axhline(0, color="0.55", linewidth=1)
    axis.set(xlabel="T", xticks=lengths)


def text_scaling() -> Figure:
    """Perplexity below that of softmax, percent, against length; the paper's figure as a star."""
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axis = figure.subplots()
    gaps(axis, text, TEXT_LENGTHS, percent_gap)
    axis.plot(12, 1.08, "*", color="0", markersize=10, label="h+J, paper")
    axis.set(ylabel="perplexity below softmax, %", title="Tiny Shakespeare, paired seeds, 95 % intervals")
    axis.legend(ncol=2)
    return figure


def bracket_scaling() -> Figure:
    """Accuracy above that of softmax, points, against length, without and with a feed-forward layer."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axis, ffn, paper in zip(figure.subplots(1, 2, sharey=True), (False, True), (4.53, 2.89), strict=True):
        gaps(axis, brackets(ffn), BRACKET_LENGTHS, point_gap)
        axis.plot(16, paper, "*", color="0", markersize=10, label="h+J, paper")
        axis.set(title=f"brackets, {'with' if ffn else 'without'} feed-forward layer")
        if not ffn:
            axis.set(ylabel="accuracy above softmax, points")
            axis.legend(ncol=2)
    return figure


def bracket_curves() -> Figure:
    """Accuracy against steps at T = 16, mean over seeds, without and with a feed-forward layer."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axis, ffn in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        for kind, style in KIND_STYLES.items():
            record = brackets(ffn)(16, kind)
            if record is not None:
                mean = 100 * np.array(record["curve_accuracy"]).mean(1)
                axis.plot(record["curve_steps"], mean, label=kind, markevery=4, **style)
        axis.set(xlabel="steps", title=f"brackets, T = 16, {'with' if ffn else 'without'} feed-forward layer")
        if not ffn:
            axis.set(ylabel="accuracy, %")
            axis.legend(ncol=2)
    return figure


def structure() -> Figure:
    """Learned couplings: mean over seeds as heat maps, and against distance."""
    found = {
        "text, T = 12": text(12, "h+J"),
        "brackets, T = 12": brackets(False)(12, "h+J"),
        "brackets, T = 16": brackets(False)(16, "h+J"),
    }
    done = {name: record for name, record in found.items() if record is not None}
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    if not done:
        return figure
    axes = figure.subplots(2, len(done), squeeze=False)
    for (name, record), top, bottom in zip(done.items(), *axes, strict=True):
        mean = pair_matrix(record).mean(0)
        largest = float(abs(mean).max())
        image = top.imshow(mean, cmap="gray", vmin=-largest, vmax=largest)
        figure.colorbar(image, ax=top)
        top.set(title=f"J, {name}", xlabel="key position", ylabel="key position")
        top.grid(False)
        with_intervals(bottom, by_distance(record), "h+J")
        bottom.axhline(0, color="0.55", linewidth=1)
        bottom.axvspan(2, 4, color="0.9", zorder=0, label="paper: positive")
        bottom.axvspan(6, len(mean) - 1, color="0.8", zorder=0, label="paper: negative")
        bottom.set(xlabel="distance", ylabel="mean J, 95 % over seeds")
    figure.legend(*axes[1][0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
    return figure


def planted() -> Figure:
    """Correlation of learned with planted couplings against the number of examples."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axis = figure.subplots()
    marks = "osv^D<>P*x"
    for number, solver in enumerate(planted_couplings.SOLVERS):
        points = {}
        for size in planted_couplings.SIZES:
            found = find("planted_couplings", solver=solver, examples=size)
            if found:
                points[size] = interval([record["correlation"] for record in found])
        mean = np.array([value.mean for value in points.values()])
        bars = np.array([[value.mean - value.low, value.high - value.mean] for value in points.values()]).T
        if len(points):
            shade, line = str(0.08 * number), ["-", "--", ":", "-."][number % 4]
            axis.errorbar(
                list(points), mean, bars, label=solver, color=shade, linestyle=line, marker=marks[number], linewidth=1
            )
    axis.set(xscale="log", xlabel="examples", ylabel="correlation with planted J")
    axis.legend(fontsize=6.5)
    return figure


def recall() -> Figure:
    """Accuracy against pairs; and against steps at P = 4."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    cases = [(kind, 0.0) for kind in KIND_STYLES] + [("softmax+mixing", 1.0), ("h+J", 1.0)]
    for kind, start in cases:
        name = f"{kind}, start 1" if start else kind
        look = KIND_STYLES[kind] | ({} if not start else {"linewidth": 2.2})
        points, curve = {}, None
        for pairs in range(2, 10):
            record = one("associative_recall", pairs=pairs, kind=kind, start=start, ffn=False, seeds=[0, 5])
            if record is not None:
                points[pairs] = np.mean(record["accuracy"])
                curve = record if pairs == 4 else curve
        left.plot(list(points), list(points.values()), label=name, **look)
        if curve is not None:
            right.plot(curve["curve_steps"], np.array(curve["curve_accuracy"]).mean(1), label=name, **look)
    left.set(xlabel="pairs P", ylabel="accuracy, mean of 5 seeds", title="recall, one layer, one head")
    right.set(xlabel="steps", title="P = 4")
    left.legend(fontsize=6.5, loc="center right")
    return figure


def joint() -> Figure:
    """Accuracy of every kind on the tasks of joint choice, the better start of each."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(CASES), sharey=True)
    for axis, (task, length, start) in zip(axes, CASES, strict=True):
        for number, kind in enumerate(KIND_STYLES):
            found = [
                record
                for begin in (0.0, start)
                if (record := one("joint_choice", task=task, length=length, kind=kind, start=begin, seeds=[0, 5]))
            ]
            if found:
                best = max((interval(accuracies(record)) for record in found), key=lambda value: value.mean)
                bars = [[best.mean - best.low], [best.high - best.mean]]
                axis.bar(number, best.mean, yerr=bars, color=KIND_STYLES[kind]["color"], edgecolor="0", capsize=2)
        axis.set(title=f"{task}, T = {length}", xticks=range(len(KIND_STYLES)))
        axis.set_xticklabels(list(KIND_STYLES), rotation=90, fontsize=7)
    axes[0].set(ylabel="accuracy, %")
    return figure


def rings() -> Figure:
    """Accuracy of every seed on the rings, with couplings and with the rivals."""
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    axes = figure.subplots(1, len(ring_choice.LENGTHS), sharex=True)
    names = [
        f"{kind}{f', start {start:g}' if start else ''}{', feed-forward' if ffn else ''}"
        for kind, start, ffn in ring_choice.RUNS
    ]
    for axis, length in zip(axes, ring_choice.LENGTHS, strict=True):
        for row, (kind, start, ffn) in enumerate(ring_choice.RUNS):
            at = {"length": length, "ffn": ffn, "seeds": ring_choice.SEEDS}
            record = one("ring_choice", kind=kind, start=start, **at)
            if record is not None:
                look = {"color": KIND_STYLES[kind]["color"], "marker": KIND_STYLES[kind]["marker"]}
                axis.plot(accuracies(record), [row] * len(record["accuracy"]), linestyle="", alpha=0.7, **look)
        axis.axvline(100 * ring_choice.SOLVED, color="0.55", linewidth=1)
        axis.set(title=f"ring of {length}, ten fresh seeds", xlabel="accuracy, %", yticks=range(len(names)))
        axis.invert_yaxis()
        axis.set_yticklabels(names if axis is axes[0] else [], fontsize=7)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "text_scaling": text_scaling,
    "bracket_scaling": bracket_scaling,
    "bracket_curves": bracket_curves,
    "coupling_structure": structure,
    "planted_couplings": planted,
    "recall_pairs": recall,
    "joint_choice": joint,
    "ring_choice": rings,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(FIGURES), metavar="NAME", help="these figures")
    parser.add_argument("--folder", type=Path, default=IMAGES, help="default: docs/images")
    given = parser.parse_args()
    with matplotlib.rc_context(LOOKS):
        for name in given.only or FIGURES:
            path = given.folder / f"{name}.png"
            FIGURES[name]().savefig(path, dpi=160, metadata={"Software": None})
            print(path, flush=True)


if __name__ == "__main__":
    main()
