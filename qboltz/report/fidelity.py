"""How far the sampler of a run is from exact enumeration, on what the trained model asks of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import matplotlib
import numpy as np

from qboltz.experiments.model import OneLayerTransformer
from qboltz.report.attention import Attended, attend, magnetization_error, shot_noise, total_variation
from qboltz.report.page import Html, Picture, figure, paragraph, table
from qboltz.report.pictures import LOOKS, new_figure, render
from qboltz.schedule import AnnealingSchedule
from qboltz.solvers import make_solver
from qboltz.tasks.base import Batch

#: Circuits of so many qubits are also simulated without shot noise.
MOST_QUBITS = 12


def without_shot_noise(
    args: argparse.Namespace, schedule: AnnealingSchedule, model: OneLayerTransformer, batch: Batch
) -> Attended | None:
    """The same circuits with infinitely many shots, if they are small enough to be simulated quickly."""
    if batch.tokens.shape[1] > MOST_QUBITS:
        return None
    solver = make_solver("statevector", schedule=schedule, estimator=args.estimator, polish=args.polish, seed=0)
    return attend(model, batch, solver)


def fidelity(
    name: str, sampled: Attended, exact: Attended, ideal: Attended | None, plain_shots: int | None
) -> list[Html]:
    """The section: a table of errors, and every magnetization over its exact value.

    Args:
        name: of the sampler.
        sampled: its pass.
        exact: that of exact enumeration over the same batch.
        ideal: that of its circuits without shot noise, if there are any.
        plain_shots: samples of each model whose plain means the magnetizations are; what perfect ones would give is
            then known.
    """
    rows: list[list[object]] = [_row(name, sampled, exact)]
    if ideal is not None:
        rows.append(_row("the same circuits, ideal and with infinitely many shots", ideal, exact))
    if plain_shots is not None:
        rows.append(
            [f"perfect samples, {plain_shots} shots (expected)", f"{shot_noise(exact, plain_shots):.4f}", "", "", ""]
        )
    rows.append(["exact enumeration", "0", "0", f"{exact.accuracy:.4f}", f"{exact.loss:.4f}"])
    head = ["", "rms error of m", "total variation", "accuracy", "loss"]
    count, asked = exact.batch.size, exact.batch.num_targets
    where = f"On {count} test sequences" + (f" ({asked} asking rows)" if asked != count else "")
    explained = (
        f"{where}, against exact enumeration of the same fields and couplings: root mean square error of the "
        "magnetizations, and mean total variation of the attention weights (0: equal, 1: nothing in common)."
    )
    caption = "Left: each magnetization over its exact value. Right: how often a row's weights are how far off."
    return [paragraph(explained), table(head, rows), figure(_picture({name: sampled}, exact), caption)]


def _row(name: str, one: Attended, exact: Attended) -> list[object]:
    variation = float(total_variation(one, exact).mean())
    numbers = [magnetization_error(one, exact), variation, one.accuracy, one.loss]
    return [name, *(f"{number:.4f}" for number in numbers)]


def _picture(passes: Mapping[str, Attended], exact: Attended) -> Picture:
    assert exact.magnetization is not None
    with matplotlib.rc_context(LOOKS):
        drawn = new_figure(8.6, 3.3)
        left, right = drawn.subplots(1, 2, width_ratios=[1, 1.25])
        left.axline((0, 0), slope=1, color="0.5", linewidth=0.8)
        for name, one in passes.items():
            assert one.magnetization is not None
            reference, measured = (x.magnetization[exact.visible] for x in (exact, one) if x.magnetization is not None)
            left.plot(reference, measured, ".", color="0.0", alpha=0.35, markersize=3, label=name)
            distance = total_variation(one, exact).numpy()
            right.hist(distance, bins=np.linspace(0, max(0.1, float(distance.max())), 25).tolist(), color="0.45")
            right.axvline(float(distance.mean()), color="0.0", linestyle="--", linewidth=1, label="mean")
        left.set(xlabel="exact magnetization", ylabel="by the sampler", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
        left.set_aspect("equal")
        right.set(xlabel="total variation of the weights of a row", ylabel="rows")
        right.legend()
        return render(drawn, "Magnetizations of the sampler over exact ones, and a histogram of total variations")
