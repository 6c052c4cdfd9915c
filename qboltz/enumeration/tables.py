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
#: A field that leaves a weight of exactly 0, in float64 too, to the spin that it pulls against.
PINNED = 1e4


def floor(dtype: torch.dtype) -> float:
    """Weights below it are set to 0: arithmetic with denormal numbers, and with what they make, is ten times slower."""
    return math.pow(torch.finfo(dtype).tiny, 0.8)


def _exp(exponents: Tensor, deepest: float) -> Tensor:
    """``exp`` in place, 0 below the floor; no exponent is below ``-deepest``."""
    smallest = floor(exponents.dtype)
    if deepest <= -math.log(smallest):
        return exponents.exp_()
    # An exponential that underflows is itself slow: what will be 0 is first brought to just below the floor.
    return torch.threshold_(exponents.clamp_min_(math.log(smallest) - 1.0).exp_(), smallest, 0.0)


@lru_cache(maxsize=128)
def half_table(num_spins: int, blocks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Configurations a table runs over, ``(2**n / blocks, n)``: all of them, or those whose last spin is +1."""
    return spin_table(num_spins, dtype=dtype, device=device)[: 2**num_spins // blocks].contiguous()


@lru_cache(maxsize=128)
def both_halves(num_spins: int, blocks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The tables of both halves below each other, ``(A + B, n)``, zeros elsewhere."""
    left = num_spins // 2
    halves = [half_table(k, blocks, dtype, device) for k in (left, num_spins - left)]
    both: Tensor = torch.block_diag(*halves)
    return both


@lru_cache(maxsize=128)
def _losses(num_spins: int, blocks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """``-2`` where a field pulling up meets a spin down, then where one pulling down meets a spin up.

    ``(blocks, 2 n, A + B)``; the second block is for all spins flipped.
    """
    both = both_halves(num_spins, blocks, dtype, device).mT
    down, up = both.clamp(max=0.0).abs(), both.clamp(min=0.0)
    return torch.stack([torch.cat([down, up]), torch.cat([up, down])])[:blocks].mul_(-2.0)


def field_tables(fields: Tensor, hidden: Tensor | None, blocks: int) -> Tensor:
    """``exp(h . s - sum |h|)`` of both halves side by side, 0 where a hidden spin is +1: ``(blocks, G, R, A + B)``.

    ``s_j h_j - |h_j|`` is 0 or ``-2 |h_j|``: sums of terms of one sign, in which nothing cancels.
    """
    groups, rows, n = fields.shape
    pulls = torch.cat([fields, -fields], -1).clamp_min_(0.0)  # (G, R, 2 n)
    if hidden is not None:
        pulls[..., n:].masked_fill_(hidden, PINNED)
    losses = _losses(n, blocks, fields.dtype, fields.device)
    exponents = torch.bmm(pulls.view(1, groups * rows, 2 * n).expand(blocks, -1, -1), losses)
    deepest = math.inf if hidden is not None else 2 * float(fields.abs().sum(-1).max())
    table = _exp(exponents, deepest)
    if blocks == 2:
        _even_and_odd(table)
    return table.view(blocks, groups, rows, -1)


def _even_and_odd(table: Tensor) -> None:
    """``(x, y)`` to ``(x + y, x - y)``, in place."""
    even, odd = table.unbind()
    even.add_(odd)
    torch.add(even, odd, alpha=-2, out=odd)


class CouplingTable:
    """``C exp(-shift)``: weights of the couplings, for all rows of ``G`` groups; made tile by tile where it is large.

    Args:
        couplings: ``(G, n, n)``, at least two spins.
        blocks: 2 for the parity blocks, 1 for plain values.
        keep: keep the tiles once made, otherwise make them again for every use.

    Attributes:
        left, right: configurations of the halves, ``(A, a)`` and ``(B, b)``.
        both: the two below each other, ``(A + B, n)``, zeros elsewhere.
        shift: ``(G,)``, not below the largest exponent.
    """

    def __init__(self, couplings: Tensor, blocks: int, keep: bool = True) -> None:
        groups, n = couplings.shape[:2]
        self.couplings = couplings
        self.blocks = blocks
        self.num_left = n // 2
        kind = (blocks, couplings.dtype, couplings.device)
        self.left, self.right = half_table(self.num_left, *kind), half_table(n - self.num_left, *kind)
        self.both = both_halves(n, *kind)
        pull = self.both @ couplings  # (G, A + B, n)
        within = (pull * self.both).sum(-1).mul_(0.5)
        self._left_pull = pull[:, : len(self.left), self.num_left :]  # (G, A, b)
        left_energy, self._right_energy = within.split((len(self.left), len(self.right)), -1)
        peak = (left_energy + self._left_pull.abs().sum(-1)).amax(-1)
        self.shift = peak + self._right_energy.amax(-1)
        self._left_energy = left_energy - self.shift[:, None]
        self._deepest = float(torch.linalg.vector_norm(couplings, 1, (-2, -1)).max())  # twice the largest energy
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
        pull = self._left_pull[:, rows] @ self.right.mT  # (G, T, B)
        within = self._left_energy[:, rows, None] + self._right_energy[:, None, :]
        tile = pull.new_empty(self.blocks, *pull.shape)
        torch.add(within, pull, out=tile[0])
        if self.blocks == 2:
            torch.sub(within, pull, out=tile[1])
        return tile

    def tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """Tiles of ``C``: rows of the left table and ``(blocks * G, T, B)``."""
        if self._kept:
            yield from zip(self._slices, self._kept, strict=True)
            return
        made = []
        for rows in self._slices:
            tile = self._combined(_exp(self._exponents(rows), self._deepest))
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
