"""Which rows are enumerated together, over which spins: rows that see few spins should not pay for many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: The most patterns of lengths that get buckets of their own; beyond, groups share buckets fit for the longest.
MAX_PATTERNS = 32

Index = slice | Tensor
EVERYTHING = slice(None)


@dataclass(frozen=True)
class Bucket:
    """Some rows of some groups and the spins that any of them sees: the product ``groups x rows x spins``."""

    groups: Index = field(default_factory=lambda: EVERYTHING)
    rows: Index = field(default_factory=lambda: EVERYTHING)
    spins: Index = field(default_factory=lambda: EVERYTHING)

    @property
    def is_everything(self) -> bool:
        """All rows of all groups over all spins."""
        return all(isinstance(index, slice) and index == EVERYTHING for index in (self.groups, self.rows, self.spins))

    def take(self, values: Tensor) -> Tensor:
        """``(G, R, n)`` to ``(g, r, k)``."""
        return _take(values, (self.groups, self.rows, self.spins))

    def take_couplings(self, couplings: Tensor) -> Tensor:
        """``(G, n, n)`` to ``(g, k, k)``."""
        return _take(couplings, (self.groups, self.spins, self.spins))

    def put(self, total: Tensor, values: Tensor) -> None:
        """Write ``(g, r, ...)`` or ``(g, r, k, ...)`` into its places in ``(G, R, ...)`` or ``(G, R, n, ...)``."""
        _put(total, (self.groups, self.rows, self.spins), values)

    def put_covariance(self, total: Tensor, values: Tensor) -> None:
        """Write ``(g, r, k, k)`` into its places in ``(G, R, n, n)``."""
        _put(total, (self.groups, self.rows, self.spins, self.spins), values)

    def add_couplings(self, total: Tensor, values: Tensor) -> None:
        """Add ``(g, k, k)`` to its places in ``(G, n, n)``."""
        where = (self.groups, self.spins, self.spins)
        _put(total, where, _take(total, where) + values)

    def narrowed(self, groups: Index = EVERYTHING, rows: Index = EVERYTHING) -> Bucket:
        """The bucket of some of its own groups and rows (positions within the bucket)."""
        if groups is EVERYTHING and rows is EVERYTHING:
            return self
        return Bucket(_compose(self.groups, groups), _compose(self.rows, rows), self.spins)


def _take(values: Tensor, where: tuple[Index, ...]) -> Tensor:
    for axis, index in enumerate(where):
        if isinstance(index, Tensor):
            values = values.index_select(axis, index)
        elif index != EVERYTHING:
            values = values[(EVERYTHING,) * axis + (index,)]
    return values


def _put(total: Tensor, where: tuple[Index, ...], values: Tensor) -> None:
    where = where[: total.dim()]
    values = values.to(total.dtype)
    for axis, index in enumerate(where):
        if isinstance(index, slice) and index != EVERYTHING:
            total = total[(EVERYTHING,) * axis + (index,)]
    chosen = [(axis, index) for axis, index in enumerate(where) if isinstance(index, Tensor)]
    if not chosen:
        total.copy_(values)
    elif len(chosen) == 1:
        total.index_copy_(*chosen[0], values)
    else:
        axes = [
            torch.arange(total.shape[axis], device=total.device) if isinstance(index, slice) else index
            for axis, index in enumerate(where)
        ]
        grid = [index.view(-1, *[1] * (len(axes) - 1 - axis)) for axis, index in enumerate(axes)]
        total.index_put_(tuple(grid), values)


def _compose(outer: Index, inner: Index) -> Index:
    if isinstance(outer, Tensor):
        return outer[inner]
    start = outer.start or 0
    if isinstance(inner, Tensor):
        return inner + start
    if inner == EVERYTHING:
        return outer
    stop = inner.stop + start if outer.stop is None else min(inner.stop + start, outer.stop)
    return slice(start + (inner.start or 0), stop)


def bucketed(visible: Tensor | None, shape: tuple[int, int, int], max_spins: int) -> Iterator[Bucket]:
    """Buckets that together hold every row that sees a spin, each once; their estimated cost is the least.

    Rows are ordered by their last visible spin, and neighbors in that order are merged where one larger enumeration
    is cheaper than two.

    Args:
        visible: ``(G, R, n)`` or ``None``.
        shape: ``(G, R, n)``.
        max_spins: classes of rows are not merged beyond it.
    """
    if 0 in shape:
        return
    if visible is None:
        yield Bucket()
        return
    position = torch.arange(1, shape[-1] + 1, device=visible.device)
    lengths = (visible * position).amax(-1)  # (G, R)
    patterns, member = torch.unique(lengths, dim=0, return_inverse=True)
    if len(patterns) > MAX_PATTERNS:
        patterns, member = lengths.amax(0, keepdim=True), torch.zeros_like(member)
    for number, pattern in enumerate(patterns):
        groups: Index = EVERYTHING
        if len(patterns) > 1:
            groups = (member == number).nonzero().squeeze(-1)
        part = visible[groups]
        yield from _row_buckets(part.any(0), pattern, groups, len(part), max_spins)


def _row_buckets(visible: Tensor, lengths: Tensor, groups: Index, num_groups: int, max_spins: int) -> Iterator[Bucket]:
    """Buckets of rows with visible spins ``(R, n)`` and last visible spins ``lengths`` ``(R,)``."""
    present, counts = (part.tolist() for part in torch.unique(lengths, return_counts=True))
    seen = [_bits(visible[lengths == length].any(0).tolist()) for length in present]
    first = 1 if present[0] == 0 else 0  # rows that see nothing have nothing to compute
    counts = [count * num_groups for count in counts[first:]]
    for start, stop in cheapest_merge(seen[first:], counts, max_spins):
        union = 0
        for bits in seen[first + start : first + stop]:
            union |= bits
        low, high = present[first + start], present[first + stop - 1]
        rows: Index = EVERYTHING
        if first or stop - start < len(present):
            rows = ((lengths >= low) & (lengths <= high)).nonzero().squeeze(-1)
        spins: Index = slice(0, union.bit_length())
        if union + 1 != 1 << union.bit_length():  # not simply the first ones
            spins = torch.tensor([j for j in range(visible.shape[-1]) if union >> j & 1], device=visible.device)
        yield Bucket(groups, rows, spins)


def _bits(flags: list[bool]) -> int:
    return sum(1 << j for j, flag in enumerate(flags) if flag)


def cheapest_merge(seen: Sequence[int], counts: Sequence[int], max_spins: int) -> list[tuple[int, int]]:
    """Cut a sequence of classes of rows into runs ``[start, stop)`` of least total cost (dynamic programming).

    Args:
        seen: the spins each class sees, as bits.
        counts: how many rows each class has.
        max_spins: a run of more than one class sees at most that many.
    """
    best: list[tuple[float, list[tuple[int, int]]]] = [(0.0, [])]
    for stop in range(1, len(seen) + 1):
        options = []
        union, rows = 0, 0
        for start in range(stop - 1, -1, -1):
            union |= seen[start]
            rows += counts[start]
            num_spins = bin(union).count("1")
            if num_spins > max_spins and start < stop - 1:
                break
            cost, cuts = best[start]
            options.append((cost + enumeration_cost(num_spins, rows), [*cuts, (start, stop)]))
        best.append(min(options))
    return best[-1][1]


def enumeration_cost(num_spins: int, rows: int) -> float:
    """Estimated microseconds, forward and backward; only ratios matter.

    Measured on two cores: a fixed cost per call, passes over the half tables of every row, and the matrix products.
    """
    states = math.pow(2.0, num_spins)
    return 600.0 + rows * (0.01 * math.sqrt(states) + 6e-5 * states) + 3e-3 * states
