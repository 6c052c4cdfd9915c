r"""All-to-all couplings on a line of qubits: the swap network, and what of it a sparse J can do without.

On a line only neighbors can meet, so spins travel. A step on wires ``(w, w + 1)`` applies
``RZZ(theta)`` to the two spins there and exchanges them, both in three CX:

.. math:: \mathrm{SWAP} \cdot RZZ(\theta) = CX_{ab} \; CX_{ba} \; RZ_b(\theta) \; CX_{ab}

Without the exchange it is ``CX_ab RZ_b CX_ab``, two CX. A brick wall of ``n`` layers of such steps reverses the line,
and every pair meets exactly once. The first and the last layer need no exchange (the spins may just as well start and
end where they are), so one Trotter layer of ``n`` spins takes ``(n - 1)(3n - 2) / 2`` CX at depth ``3n - 2``. The next
Trotter layer runs the same steps backwards, so that the order returns and nothing is lost in between.

Source: swap networks of Kivlichan et al., arXiv:1711.04789, with the phase inside the exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import rustworkx as rx
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from qboltz.errors import check_integer
from qboltz.spins import num_pairs, pair_indices

Pair = tuple[int, int]
#: Orders of the spins that are tried for a sparse J besides the natural one and the one of least bandwidth.
NUM_RANDOM_ORDERS = 24


class Step(NamedTuple):
    """What happens on wires ``(wire, wire + 1)``: the phase of ``pair`` (``None``: none), and an exchange or not."""

    wire: int
    pair: Pair | None
    swap: bool

    @property
    def num_cx(self) -> int:
        """Three with an exchange, two without."""
        return 3 if self.swap else 2


@dataclass(frozen=True)
class Network:
    """The coupling phases of one Trotter layer on a line.

    Attributes:
        start: the spin on each wire before the steps.
        end: and after them.
        steps: in order of time; every wanted pair is the ``pair`` of exactly one.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    steps: tuple[Step, ...]

    def backwards(self) -> Network:
        """The same phases from ``end`` to ``start``."""
        return Network(self.end, self.start, self.steps[::-1])

    @property
    def num_cx(self) -> int:
        """Two-qubit gates of one layer."""
        return sum(step.num_cx for step in self.steps)

    @property
    def depth(self) -> int:
        """Two-qubit gates one after the other in one layer."""
        busy = [0] * (len(self.start) + 1)
        for step in self.steps:
            busy[step.wire] = busy[step.wire + 1] = max(busy[step.wire], busy[step.wire + 1]) + step.num_cx
        return max(busy)

    @property
    def cx_per_edge(self) -> NDArray[np.int64]:
        """``(n - 1,)``: two-qubit gates on each edge of the line in one layer."""
        counts = np.zeros(max(0, len(self.start) - 1), dtype=np.int64)
        for step in self.steps:
            counts[step.wire] += step.num_cx
        return counts


def all_pairs(num_spins: int) -> tuple[Pair, ...]:
    """The pairs ``j < l`` in the order of ``qboltz.spins``."""
    first, second = pair_indices(num_spins)
    return tuple(zip(first.tolist(), second.tolist(), strict=True))


def checked_pairs(num_spins: int, pairs: Iterable[Sequence[int]]) -> tuple[Pair, ...]:
    """Pairs in either order as sorted pairs ``j < l``, each once.

    Raises:
        ValueError: a pair does not name two different spins.
    """
    found = set()
    for pair in pairs:
        first, second = sorted(int(spin) for spin in pair)
        if not 0 <= first < second < num_spins:
            raise ValueError(f"pairs must name two different spins below {num_spins}, got {tuple(pair)}.")
        found.add((first, second))
    return tuple(sorted(found))


@lru_cache(maxsize=256)
def line_network(num_spins: int, pairs: tuple[Pair, ...] | None = None) -> Network:
    """The network with the fewest two-qubit gates that was found for these pairs (sorted, ``j < l``; ``None``: all).

    Spins that no chain of couplings connects get lines of their own, side by side, and spins without any coupling
    stand at the end. On each of these lines the brick wall is cut down to what the pairs need, for several orders of
    the spins, and compared with spins that travel only towards those they have yet to meet.

    Raises:
        TypeError, ValueError: ``num_spins`` is no positive integer, or a pair is none.
    """
    check_integer("num_spins", num_spins)
    wanted = all_pairs(num_spins) if pairs is None else checked_pairs(num_spins, pairs)
    graph = rx.PyGraph()
    graph.add_nodes_from(range(num_spins))
    graph.add_edges_from_no_data(list(wanted))
    components = sorted(map(sorted, rx.connected_components(graph)), key=lambda spins: (len(spins) == 1, spins))
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    for spins in components:
        part = _component_network(spins, frozenset(pair for pair in wanted if pair[0] in spins))
        steps += tuple(Step(step.wire + len(start), step.pair, step.swap) for step in part.steps)
        start, end = start + part.start, end + part.end
    return Network(start, end, steps)


def _component_network(spins: list[int], pairs: frozenset[Pair]) -> Network:
    candidates = [_brick_wall(spins, pairs)]
    if len(pairs) < num_pairs(len(spins)):
        for order in _orders(spins, pairs):
            candidates.append(_brick_wall(order, pairs))
            candidates += _travel(order, pairs)
    return min(candidates, key=lambda network: (network.num_cx, network.depth))


def _orders(spins: list[int], pairs: frozenset[Pair]) -> list[list[int]]:
    place = {spin: index for index, spin in enumerate(spins)}
    rows, columns = ([place[spin] for spin in side] for side in zip(*pairs, strict=True))
    matrix = csr_array((np.ones(2 * len(pairs)), (rows + columns, columns + rows)), shape=(len(spins),) * 2)
    narrow = [spins[index] for index in reverse_cuthill_mckee(matrix, symmetric_mode=True)]
    rng = np.random.default_rng(0)
    return [spins, narrow, *(rng.permutation(spins).tolist() for _ in range(NUM_RANDOM_ORDERS))]


def _brick_wall(order: Sequence[int], pairs: frozenset[Pair]) -> Network:
    line = list(order)
    steps: list[Step] = []
    for brick in range(len(line)):
        for wire in range(brick % 2, len(line) - 1, 2):
            pair = _pair(line, wire)
            steps.append(Step(wire, pair if pair in pairs else None, True))
            _exchange(line, wire)
    return _pruned(order, steps)


def _travel(order: Sequence[int], pairs: frozenset[Pair]) -> list[Network]:
    """Exchange neighbors only where that brings spins nearer to those they still have to meet; none if that ends."""
    line, missing = list(order), set(pairs)
    steps: list[Step | None] = []
    waiting: dict[Pair, int] = {}  # where a phase without an exchange stands
    brick = idle = 0
    while missing and idle < 2:
        idle += 1
        for wire in range(brick % 2, len(line) - 1, 2):
            pair = _pair(line, wire)
            meets = pair in missing
            missing.discard(pair)
            swap = _gain(line, wire, missing) > 0
            if swap and pair in waiting:  # the phase is free of charge inside this exchange
                steps[waiting.pop(pair)] = None
                meets = True
            if meets or swap:
                if meets and not swap:
                    waiting[pair] = len(steps)
                steps.append(Step(wire, pair if meets else None, swap))
                idle = 0
            if swap:
                _exchange(line, wire)
        brick += 1
    return [] if missing else [_pruned(order, [step for step in steps if step is not None])]


def _gain(line: list[int], wire: int, missing: set[Pair]) -> int:
    """By how much an exchange shortens the distances between the pairs that have yet to meet."""
    place = {spin: index for index, spin in enumerate(line)}
    left, right = line[wire], line[wire + 1]
    gain = 0
    for first, second in missing:
        for spin, other in ((first, second), (second, first)):
            if spin == left:
                gain += 1 if place[other] > wire + 1 else -1
            elif spin == right:
                gain += 1 if place[other] < wire else -1
    return gain


def _pruned(order: Sequence[int], steps: list[Step]) -> Network:
    """Without the exchanges that nothing follows or nothing precedes on either wire, and without empty steps."""
    start = list(order)
    for early in (False, True):
        touched: set[int] = set()
        kept = []
        for step in steps if early else steps[::-1]:
            wires = {step.wire, step.wire + 1}
            if step.swap and not wires & touched:
                if early:  # the two spins start exchanged instead
                    _exchange(start, step.wire)
                step = step._replace(swap=False)
            if step.swap or step.pair is not None:
                touched |= wires
                kept.append(step)
        steps = kept if early else kept[::-1]
    end = start.copy()
    for step in steps:
        if step.swap:
            _exchange(end, step.wire)
    return Network(tuple(start), tuple(end), tuple(steps))


def _pair(line: list[int], wire: int) -> Pair:
    first, second = sorted(line[wire : wire + 2])
    return first, second


def _exchange(line: list[int], wire: int) -> None:
    line[wire], line[wire + 1] = line[wire + 1], line[wire]
