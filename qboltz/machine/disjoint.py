"""The most lines that do not touch each other, and of these sets the cheapest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import rustworkx as rx
from numpy.typing import NDArray

from qboltz.machine.bricks import Pair

#: Moves of the search for the best set of lines (half a second on a chip of 156 qubits).
NUM_MOVES = 4000


class Costed(Protocol):
    """A line of qubits and what it costs."""

    @property
    def qubits(self) -> tuple[int, ...]:
        """Physical qubits."""

    @property
    def cost(self) -> float:
        """Less is better."""


def cliques(coupled: Iterable[Pair], num_qubits: int, guard: int) -> list[frozenset[int]]:
    """Sets of qubits of which at most one line may touch any: balls, so that any two of their qubits are too near.

    Two lines are too near if some of their qubits are at most ``guard`` edges apart (0: the same qubit). For an even
    guard these are the balls of radius ``guard / 2`` around qubits, for an odd one those around both ends of edges.
    """
    edges = list(coupled)
    graph = rx.PyGraph()
    graph.add_nodes_from(range(num_qubits))
    graph.add_edges_from_no_data(edges)
    centers: Iterable[tuple[int, ...]] = edges if guard % 2 else ((q,) for q in graph.node_indices())
    near = rx.distance_matrix(graph, null_value=math.inf) <= guard // 2
    return [frozenset(np.flatnonzero(near[list(center)].any(0)).tolist()) for center in centers]


def best_disjoint(lines: Sequence[Costed], cliques: list[frozenset[int]], limit: int | None) -> list[int]:
    """Numbers of the lines in the largest set of which no two touch one clique, and the cheapest of that size.

    The search is simulated annealing. A move puts one more line in, takes out what is in its way, and fills up with the
    cheapest lines that still fit. The generator is seeded, so that equal calibrations give equal lines.
    """
    if not lines or limit == 1:
        return sorted(range(len(lines)), key=lambda index: (lines[index].cost, lines[index].qubits))[:1]
    cost = np.array([line.cost for line in lines])
    conflict = _conflicts(lines, cliques)
    most = limit or len(lines)
    rng = np.random.default_rng(0)
    chosen = np.zeros(len(lines), dtype=bool)
    blocked = np.zeros(len(lines), dtype=np.int16)  # chosen lines in the way of each line, itself included

    def put(line: int) -> None:
        chosen[line] = True
        np.add(blocked, conflict[line], out=blocked)

    def take(line: int) -> None:
        chosen[line] = False
        np.subtract(blocked, conflict[line], out=blocked)

    def fill(price: NDArray[np.float64]) -> None:
        while chosen.sum() < most and len(free := np.flatnonzero(blocked == 0)):
            put(int(free[np.argmin(price[free])]))

    fill(cost if limit else conflict.sum(1) + cost / (1 + cost.max()))
    present = best = (int(chosen.sum()), -float(cost[chosen].sum()))
    best_chosen = chosen.copy()
    num_moves = min(NUM_MOVES, 10 * len(lines))
    for move in range(num_moves):
        candidates = np.flatnonzero(~chosen & (blocked <= 2) if move % 8 else ~chosen)
        if not len(candidates):
            continue
        line = int(candidates[rng.integers(len(candidates))])
        before = chosen.copy(), blocked.copy()
        for other in np.flatnonzero(chosen & (conflict[line] > 0)):
            take(int(other))
        if chosen.sum() >= most:
            take(int(np.argmax(np.where(chosen, cost, -1.0))))
        put(line)
        fill(cost)
        found = (int(chosen.sum()), -float(cost[chosen].sum()))
        slack = 0.25 * np.median(cost) * (1 - move / num_moves) * rng.exponential()
        if found[0] > present[0] or (found[0] == present[0] and found[1] >= present[1] - slack):
            present = found
            if found > best:
                best, best_chosen = found, chosen.copy()
        else:
            chosen[:], blocked[:] = before
    return [int(line) for line in np.flatnonzero(best_chosen)]


def _conflicts(lines: Sequence[Costed], cliques: list[frozenset[int]]) -> NDArray[np.int8]:
    """``(L, L)``: 1 where two lines touch one clique, and on the diagonal."""
    touches = np.zeros((len(lines), len(cliques)), dtype=np.float32)
    of_qubit: dict[int, list[int]] = {}
    for column, clique in enumerate(cliques):
        for qubit in clique:
            of_qubit.setdefault(qubit, []).append(column)
    for row, line in enumerate(lines):
        touches[row, [column for qubit in line.qubits for column in of_qubit.get(qubit, [])]] = 1
    conflict = (touches @ touches.T > 0).astype(np.int8)
    np.fill_diagonal(conflict, 1)
    return conflict
