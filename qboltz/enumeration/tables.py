r"""Tables over half of the spins, and the table of couplings between the halves.

The spins are split into a left half ``L`` (the first ``n // 2``) and a right half ``R``. Couplings are unchanged when
all spins flip, so sums over configurations fall apart into an even and an odd part: with ``u(s) = exp(h_L . s)`` on
the left, likewise ``u'`` on the right, and ``C(s_L, s_R) = exp(couplings)``,

.. math::
    u_\pm = u(s) \pm u(-s), \quad C_\pm = \tfrac12 (C(s_L, s_R) \pm C(s_L, -s_R)), \quad
    \sum_{s_L, s_R} u C u' = \sum_{\text{half of } s_L} \sum_{\text{half of } s_R} (u_+ C_+ u'_+ + u_- C_- u'_-)

which is half of the work of the plain sum. A table with two parity blocks holds ``u_+, u_-`` (or ``C_+, C_-``) for the
configurations whose last spin is +1; one with a single block holds the plain values for all configurations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from qboltz.spins import spin_table

#: Entries of the coupling table worked on at a time.
TILE_ELEMENTS = 2**20


def floor(dtype: torch.dtype) -> float:
    """Weights below it are set to 0: arithmetic with denormal numbers, and with what they make, is ten times slower."""
    return math.pow(torch.finfo(dtype).tiny, 0.8)


def _floored(weights: Tensor, largest_energy: Tensor) -> Tensor:
    """``weights`` in place, with no trace of numbers below the floor; exponents reach twice the largest energy down."""
    smallest = floor(weights.dtype)
    if bool((2 * largest_energy > -math.log(smallest)).any()):
        torch.threshold_(weights, smallest, 0.0)
    return weights


@lru_cache(maxsize=128)
def half_table(num_spins: int, blocks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Configurations a table runs over, ``(2**n / blocks, n)``: all of them, or those whose last spin is +1."""
    return spin_table(num_spins, dtype=dtype, device=device)[: 2**num_spins // blocks].contiguous()


@lru_cache(maxsize=128)
def _both_halves(num_spins: int, blocks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The tables of both halves below each other, ``(A + B, n)``, zeros elsewhere."""
    left = num_spins // 2
    halves = [half_table(k, blocks, dtype, device) for k in (left, num_spins - left)]
    both: Tensor = torch.block_diag(*halves)
    return both


@lru_cache(maxsize=128)
def _low_and_high(num_spins: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Per half, tables of its lower spins and of its last two: signs ``(n, columns)``, their squares, sizes."""
    halves = (num_spins // 2, num_spins - num_spins // 2)
    counts = [count for half in halves for count in (max(half - 2, 0), min(half, 2))]
    signs = torch.block_diag(*(spin_table(count, dtype=dtype, device=device).mT for count in counts))
    return signs, signs.abs(), tuple(2**count for count in counts)


def field_tables(fields: Tensor, hidden: Tensor | None, blocks: int) -> tuple[Tensor, Tensor]:
    """``exp(h . s - sum |h|)`` of both halves, 0 where a hidden spin is +1, each ``(blocks, G, R, A or B)``.

    The exponential is taken for the lower spins and for the last two; the table is their outer product.
    """
    signs, squares, sizes = _low_and_high(fields.shape[-1], fields.dtype, fields.device)
    sizes_of_energy = fields.abs()
    parts = (fields @ signs).sub_(sizes_of_energy @ squares).exp_()
    if hidden is not None:
        parts.masked_fill_((hidden.to(fields.dtype) @ (signs > 0).to(fields.dtype)) > 0, 0.0)
    low_left, high_left, low_right, high_right = parts.split(sizes, -1)
    energy = sizes_of_energy.sum(-1)
    return _outer(high_left, low_left, blocks, energy), _outer(high_right, low_right, blocks, energy)


def _outer(high: Tensor, low: Tensor, blocks: int, energy: Tensor) -> Tensor:
    """``(G, R, H)`` times ``(G, R, L)`` to ``(blocks, G, R, H L / blocks)``."""
    half = high.shape[-1] // blocks
    table = high.new_empty(blocks, *high.shape[:2], half, low.shape[-1])
    torch.mul(high[..., :half, None], low[..., None, :], out=table[0])
    if blocks == 2:  # the same configurations with all spins flipped
        torch.mul(high[..., half:].flip(-1).unsqueeze(-1), low.flip(-1).unsqueeze(-2), out=table[1])
    _floored(table, energy)
    if blocks == 2:
        _even_and_odd(table)
    return table.flatten(-2)


def _even_and_odd(table: Tensor) -> None:
    """``(x, y)`` to ``(x + y, x - y)``, in place."""
    table[0].add_(table[1])
    torch.add(table[0], table[1], alpha=-2, out=table[1])


class CouplingTable:
    """``C exp(-shift)``: weights of the couplings, for all rows of ``G`` groups; made tile by tile where it is large.

    Args:
        couplings: ``(G, n, n)``, at least two spins.
        blocks: 2 for the parity blocks, 1 for plain values.
        keep: keep the tiles once made, otherwise make them again for every use.

    Attributes:
        left, right: configurations of the halves, ``(A, a)`` and ``(B, b)``.
        shift: ``(G,)``, not below the largest exponent.
    """

    def __init__(self, couplings: Tensor, blocks: int, keep: bool = True) -> None:
        groups, n = couplings.shape[:2]
        self.couplings = couplings
        self.blocks = blocks
        self.num_left = n // 2
        kind = (blocks, couplings.dtype, couplings.device)
        self.left, self.right = half_table(self.num_left, *kind), half_table(n - self.num_left, *kind)
        both = _both_halves(n, *kind)
        pull = both @ couplings  # (G, A + B, n)
        within = (pull * both).sum(-1).mul_(0.5)
        self._left_pull = pull[:, : len(self.left), self.num_left :]  # (G, A, b)
        left_energy, self._right_energy = within.split((len(self.left), len(self.right)), -1)
        peak = (left_energy + self._left_pull.abs().sum(-1)).amax(-1)
        self.shift = peak + self._right_energy.amax(-1)
        self._left_energy = left_energy - self.shift[:, None]
        self._size = 0.5 * couplings.abs().sum((-2, -1))
        per_row = groups * blocks * len(self.right)
        tile = max(1, min(len(self.left), TILE_ELEMENTS // per_row))
        self._slices = [slice(start, start + tile) for start in range(0, len(self.left), tile)]
        self._keep = keep
        self._kept: list[Tensor] = []

    @property
    def whole(self) -> bool:
        """There is one tile."""
        return len(self._slices) == 1

    def exponents(self) -> Iterator[tuple[slice, Tensor]]:
        """Tiles of ``log C - shift``: rows of the left table and ``(blocks, G, T, B)``, for ``s_R`` and ``-s_R``."""
        for rows in self._slices:
            yield rows, self._exponents(rows)

    def _exponents(self, rows: slice) -> Tensor:
        left = self._left_pull[:, rows]
        within = self._left_energy[:, rows, None] + self._right_energy[:, None, :]
        right = self.right.mT.expand(len(left), -1, -1)
        tile = left.new_empty(self.blocks, *within.shape)
        for block in range(self.blocks):
            torch.baddbmm(within, left, right, alpha=1 - 2 * block, out=tile[block])
        return tile

    def tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """Tiles of ``C``: rows of the left table and ``(blocks * G, T, B)``."""
        if self._kept:
            yield from zip(self._slices, self._kept, strict=True)
            return
        made = []
        for rows in self._slices:
            tile = self._combined(_floored(self._exponents(rows).exp_(), self._size))
            if self._keep:
                made.append(tile)
            yield rows, tile
        self._kept = made

    def energy_tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """Tiles of ``C log C`` in the same form, for the mean coupling energy."""
        for rows, exponents in self.exponents():
            yield rows, self._combined(exponents.exp().mul_(exponents))

    def _combined(self, tile: Tensor) -> Tensor:
        if self.blocks == 2:
            _even_and_odd(tile)
            tile.mul_(0.5)
        return tile.flatten(0, 1)
