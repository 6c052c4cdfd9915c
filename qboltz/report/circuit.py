"""The annealing circuit of one query of the trained model: its drawing, gates, depth and angles."""

from __future__ import annotations

import importlib.util
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qboltz.ising import IsingModel
from qboltz.report.page import Html, Picture, element, figure, paragraph, table
from qboltz.report.pictures import new_figure, render
from qboltz.schedule import AnnealingSchedule

#: More couplings than this in a drawing cannot be read.
MOST_GATES = 25
#: Inches of a unit of Qiskit's drawings, by which it also scales its fonts on a figure that it is given.
FONT_SCALE = 0.8361111
#: Wider circuits are described, not drawn.
MOST_QUBITS = 10


def one_row(model: IsingModel) -> IsingModel:
    """The first row of a batch of models, without the spins it does not see; the widest one where rows differ."""
    groups = model.groups
    fields, couplings, visible = groups.fields[0], groups.couplings[0], groups.visible
    if visible is None:
        return IsingModel(fields[0], couplings)
    row = int(visible[0].sum(-1).argmax())
    seen = visible[0, row]
    return IsingModel(fields[row, seen], couplings[seen][:, seen])


def circuit_section(model: IsingModel, schedule: AnnealingSchedule, shots: int | None, where: str) -> list[Html]:
    """Drawing and numbers of the circuit that asks for one row of ``model``."""
    from qboltz.circuits import annealing_circuit

    row = one_row(model)
    n, layers = row.num_spins, schedule.num_layers
    whole = annealing_circuit(n, schedule).circuit
    gates = ", ".join(f"{count} {name}" for name, count in sorted(whole.count_ops().items()))
    two = whole.depth(lambda gate: len(gate.qubits) == 2)
    said = (
        f"One query is a model of {n} spins and becomes a circuit of {n} qubits and {layers} layers: {gates}; depth "
        f"{whole.depth()}, of two-qubit gates {two}, before it is compiled for a device. "
        f"{'It is' if shots is None else f'Each gives {shots} shots,'} {where}."
    )
    return [paragraph(said), *_drawing(row, schedule), *_angles(schedule)]


def _drawing(row: IsingModel, schedule: AnnealingSchedule) -> list[Html]:
    from qboltz.circuits import annealing_circuit

    n, layers = row.num_spins, schedule.num_layers
    if n > MOST_QUBITS:
        return [paragraph(f"Circuits of more than {MOST_QUBITS} qubits are not drawn: nobody could read them.")]
    shown = max(1, min(layers, MOST_GATES // max(1, n * (n - 1) // 2)))
    part = AnnealingSchedule(
        schedule.field_angles[:shown], schedule.coupling_angles[:shown], schedule.mixer_angles[:shown]
    )
    circuit, bindings = annealing_circuit(n, part).bind(row)
    bound = circuit.assign_parameters(bindings.as_array(circuit.parameters)[0])
    which = (
        "The whole circuit"
        if shown == layers
        else f"Layer 1 of {layers}"
        if shown == 1
        else f"Layers 1 to {shown} of {layers}"
    )
    caption = (
        f"{which}, with the fields and couplings of the first test sequence: H makes every spin free, RZ are the "
        "fields, RZZ the couplings, RX the mixer, then every spin is measured."
    )
    if importlib.util.find_spec("pylatexenc") is None:
        said = f"{caption} Drawn as text, since Qiskit draws pictures only where the package pylatexenc is installed."
        return [element("pre", str(bound.draw("text", fold=110))), paragraph(said, class_="small")]
    return [figure(_picture(bound, which), caption)]


def _picture(circuit: Any, which: str) -> Picture:
    """Qiskit's drawing in a figure of ours: without one, it would open a figure of pyplot and leave it open."""
    with matplotlib.rc_context():
        trial = _drawn_on(new_figure(9.9, 9.9), circuit)  # its limits tell the size that fonts are made for
        (left, right), (low, high) = trial.get_xlim(), trial.get_ylim()
        size = FONT_SCALE * (right - left), FONT_SCALE * (high - low)
        drawn = new_figure(*size)
        _drawn_on(drawn, circuit)
        whole = render(drawn, f"{which}: {circuit.num_qubits} qubits, gates H, RZ, RZZ, RX and measurements")
    return Picture(whole.png, round(0.75 * whole.width), round(0.75 * whole.height), whole.alt)


def _drawn_on(drawn: Figure, circuit: Any) -> Axes:
    drawn.set_layout_engine("none")
    axis = drawn.add_axes((0, 0, 1, 1))
    style = {"fontsize": 13 * FONT_SCALE, "subfontsize": 12 * FONT_SCALE}
    circuit.draw("mpl", ax=axis, fold=24, style=style)
    return axis


def _angles(schedule: AnnealingSchedule) -> list[Html]:
    rows = [
        [k, *(f"{angle:.4f}" for angle in (layer.field_angle, layer.coupling_angle, layer.mixer_angle))]
        for k, layer in enumerate(schedule.layers(), 1)
    ]
    said = (
        f"Inverse temperature of the fields {schedule.beta_fields:.3f}, of the couplings {schedule.beta_couplings:.3f} "
        "(1 stands for the Boltzmann distribution)."
    )
    return [table(["layer", "fields", "couplings", "mixer"], rows, "Angles of the schedule"), paragraph(said)]
