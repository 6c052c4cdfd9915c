r"""Lines of qubits on a chip: disjoint, as many as fit, along the edges with the smallest calibrated errors.

A line of ``n`` qubits that runs ``w_e`` two-qubit gates on its edge ``e`` and reads every qubit once works without
any error with probability

.. math:: F = \prod_e (1 - \epsilon_e)^{w_e} \; \prod_q (1 - r_q)

and its cost is ``-log F``. Wanted is the set of disjoint lines with the most lines, and among those the one with the
least cost; it is searched for by simulated annealing over candidate lines (all of them up to about 12 qubits, the
cheapest from every qubit beyond). On 156 qubits that finds as many lines as an integer linear program, at a cost within
a few percent of its optimum, in a twentieth of the time.

Qubits and edges that the target does not report, or reports with an error of a half or more (a faulty gate has error
1), carry no line. A line that would cost more than three times the median of the others is no help and is left out too,
unless the caller sets the bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from qiskit.transpiler import InstructionProperties, Target

from qboltz.errors import check_integer
from qboltz.machine.bricks import Pair, line_network
from qboltz.machine.disjoint import best_disjoint, cliques

#: Two-qubit gates that one CX becomes exactly one of, in order of preference.
TWO_QUBIT_GATES = ("cx", "cz", "ecr")
#: An error of a half is a coin: such a gate or readout says nothing.
UNUSABLE_ERROR = 0.5
#: Cost of the worst line that is used without a bound, in medians of the cost of all.
WORST_COST = 3.0
#: Candidate lines kept per first qubit while they grow.
BEAM_WIDTH = 64


@dataclass(frozen=True)
class Line:
    """A path of qubits and its calibrated quality.

    Attributes:
        qubits: physical, wire by wire; neighbors are joined by a two-qubit gate.
        two_qubit_errors: of the edges, ``n - 1``; empty where any qubit reaches any other.
        readout_errors: ``n``.
        fidelity: probability that neither a two-qubit gate nor a readout of the anneal fails.
    """

    qubits: tuple[int, ...]
    two_qubit_errors: tuple[float, ...]
    readout_errors: tuple[float, ...]
    fidelity: float

    @property
    def error(self) -> float:
        """``1 - fidelity``."""
        return 1 - self.fidelity

    @property
    def cost(self) -> float:
        """``-log(fidelity)``, finite."""
        return -math.log(max(self.fidelity, 1e-300))


@dataclass(frozen=True)
class Calibration:
    """What a target reports of its qubits and edges, unusable ones left out.

    Attributes:
        gate: the two-qubit gate.
        edges: error of ``(a, b)``, ``a < b``, the better direction.
        readout: error of each qubit.
        coupled: all edges, usable or not.
        num_qubits: of the target.
    """

    gate: str
    edges: Mapping[Pair, float]
    readout: Mapping[int, float]
    coupled: tuple[Pair, ...]
    num_qubits: int


def find_lines(
    target: Target,
    num_spins: int,
    *,
    num_layers: int = 1,
    guard: int = 0,
    max_error: float | None = None,
    limit: int | None = None,
    pairs: tuple[Pair, ...] | None = None,
) -> tuple[Line, ...]:
    """Disjoint lines for anneals of ``num_spins`` spins, best first; none if the chip has none.

    Args:
        target: of the chip; where it lets any two qubits interact, lines are just blocks of qubits.
        num_spins: qubits of a line.
        num_layers: layers with couplings, which weigh the two-qubit errors against those of the readout.
        guard: unused qubits between two lines, at least (against crosstalk): 0, 1, ...
        max_error: lines with more than this ``Line.error`` are left out (1: none is); ``None`` leaves out those that
            cost more than three times the median.
        limit: at most so many lines, chosen for least cost.
        pairs: the couplings of the network, see ``line_network``.

    Raises:
        TypeError, ValueError: an argument is out of its range.
    """
    check_integer("num_spins", num_spins)
    check_integer("num_layers", num_layers, at_least=0)
    check_integer("guard", guard, at_least=0)
    if limit is not None:
        check_integer("limit", limit)
    if max_error is not None and not 0 <= max_error <= 1:
        raise ValueError(f"max_error must be a probability between 0 and 1, got {max_error}.")
    if any_to_any(target):
        found = _blocks(target, num_spins)
    else:
        calibration = read_calibration(target)
        weights = num_layers * line_network(num_spins, pairs).cx_per_edge
        found = _paths(calibration, weights)
    if max_error is not None:
        found = [line for line in found if line.error <= max_error]
    if not any_to_any(target):
        near = cliques(calibration.coupled, calibration.num_qubits, guard)
        chosen = [found[index] for index in best_disjoint(found, near, limit)]
        if max_error is None and chosen:
            bound = WORST_COST * float(np.median([line.cost for line in chosen]))
            if any(line.cost > bound for line in chosen):
                found = [line for line in found if line.cost <= bound]
                chosen = [found[index] for index in best_disjoint(found, near, limit)]
        found = chosen
    found.sort(key=lambda line: (-line.fidelity, line.qubits))
    return tuple(found[:limit])


def any_to_any(target: Target) -> bool:
    """Whether every two qubits of the target can interact (simulators, trapped ions)."""
    if target.num_qubits == 1:
        return False
    coupling = target.build_coupling_map()
    if coupling is None:
        return True
    reached = {tuple(sorted(edge)) for edge in coupling.get_edges()}
    return len(reached) == math.comb(target.num_qubits, 2) and target.num_qubits > 2


def read_calibration(target: Target) -> Calibration:
    """Errors of a target with limited connectivity. If it reports none at all (an ideal device), they are zero.

    Raises:
        ValueError: the target has no two-qubit gate that a CX becomes exactly one of.
    """
    gate = next((name for name in TWO_QUBIT_GATES if name in target.operation_names), None)
    if gate is None and target.num_qubits > 1:
        raise ValueError(
            f"the device must have one of the gates {', '.join(TWO_QUBIT_GATES)}, got {sorted(target.operation_names)}."
        )
    reported = _errors(target[gate]) if gate else {}
    readout = _errors(target["measure"])
    usable = {qubit: error for (qubit,), error in readout.items() if error < UNUSABLE_ERROR}
    edges: dict[Pair, float] = {}
    for (first, second), error in reported.items():
        edge = (min(first, second), max(first, second))
        if error < UNUSABLE_ERROR and usable.keys() >= set(edge):
            edges[edge] = min(error, edges.get(edge, 1.0))
    coupled = {(min(edge), max(edge)) for edge in (target[gate] or {} if gate else {})}
    return Calibration(gate or "", edges, usable, tuple(sorted(coupled)), target.num_qubits)


def _errors(reported: Mapping[tuple[int, ...], InstructionProperties | None]) -> dict[tuple[int, ...], float]:
    """Reported errors by qubits; entries that report none are left out, unless none reports any."""
    errors = {
        qubits: float(properties.error)
        for qubits, properties in reported.items()
        if properties is not None and properties.error is not None
    }
    return errors or dict.fromkeys(reported, 0.0)


def _paths(calibration: Calibration, weights: NDArray[np.int64]) -> list[Line]:
    """Simple paths of usable qubits and edges, one for each set of qubits: the better direction and way around."""
    cost_of = {edge: -math.log1p(-error) for edge, error in calibration.edges.items()}
    readout = {qubit: -math.log1p(-error) for qubit, error in calibration.readout.items()}
    neighbors: dict[int, list[int]] = {qubit: [] for qubit in readout}
    for first, second in cost_of:
        neighbors[first].append(second)
        neighbors[second].append(first)
    best: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {}
    for first in sorted(neighbors):
        beam: list[tuple[float, tuple[int, ...]]] = [(readout[first], (first,))]
        for weight in weights.tolist():
            beam = sorted(
                (cost + readout[other] + weight * cost_of[min(path[-1], other), max(path[-1], other)], (*path, other))
                for cost, path in beam
                for other in neighbors[path[-1]]
                if other not in path
            )[:BEAM_WIDTH]
        for cost, path in beam:
            key = frozenset(path)
            if key not in best or (cost, path) < best[key]:
                best[key] = cost, path
    return [_line(path, calibration, cost) for cost, path in best.values()]


def _line(path: tuple[int, ...], calibration: Calibration, cost: float) -> Line:
    edges = [(min(edge), max(edge)) for edge in itertools.pairwise(path)]
    return Line(
        path,
        tuple(calibration.edges[edge] for edge in edges),
        tuple(calibration.readout[qubit] for qubit in path),
        math.exp(-cost),
    )


def _blocks(target: Target, num_spins: int) -> list[Line]:
    """Consecutive usable qubits. Two-qubit errors do not tell them apart, as every qubit reaches every other."""
    reported = _errors(target["measure"]) if target["measure"] and None not in target["measure"] else {}
    readout = {qubit: reported.get((qubit,), 0.0) for qubit in range(target.num_qubits)}
    usable = sorted(qubit for qubit, error in readout.items() if error < UNUSABLE_ERROR)
    lines = []
    for start in range(0, len(usable) - num_spins + 1, num_spins):
        block = tuple(usable[start : start + num_spins])
        errors = tuple(readout[qubit] for qubit in block)
        lines.append(Line(block, (), errors, math.prod(1 - error for error in errors)))
    return lines
