"""Enumeration as matrix products: all rows of a group against one table of couplings."""

from __future__ import annotations

import torch
from torch import Tensor

from qboltz.enumeration.halves import SplitFactors
from qboltz.enumeration.tables import CouplingTable, field_tables, floor


class ProductFactors(SplitFactors):
    r"""Sums over all configurations by matrix products between half tables.

    With tables ``u`` (left) and ``u'`` (right) of the fields and ``C`` of the couplings (see ``tables``):

    .. math::
        V = C u', \quad W = C^T u, \quad Z = u \cdot V, \quad p_L = u V / Z, \quad p_R = u' W / Z

    and for an upstream ``f = f_L + f_R``, two more products ``C(u' f_R)`` and ``C^T (u f_L)`` for the fields, and
    ``G = (u f_L / Z)^T u' + (u / Z)^T (u' f_R)``, summed over all rows, times ``C`` for the couplings. Memory is that
    of the half tables and of one tile of ``C``.

    A row is *reliable* if its sum is far above what underflow can have lost and the even and odd parts did not cancel
    to less than ``1 / MAX_CANCELLATION``.

    Args:
        table: the couplings, ``(G, n, n)``.
        fields: ``(G, R, n)``.
        hidden: ``(G, R, n)`` boolean or ``None``.
        keep: keep the half tables for the backward pass, otherwise make them again.
    """

    #: How much larger the even part may be than the whole: the digits that cancellation may cost.
    MAX_CANCELLATION = 32.0

    def __init__(self, table: CouplingTable, fields: Tensor, hidden: Tensor | None, keep: bool = True) -> None:
        super().__init__(fields, table.couplings, hidden)
        self.table = table
        self._middle = len(table.left)
        weights = field_tables(self.fields, hidden, table.blocks)
        even, odd, cosh = self._sums(weights)
        self._z = self._left(even).sum(-1)
        self.reliable = self._is_reliable(cosh)
        self.complete = bool(self.reliable.all())
        scale = self._z.reciprocal()
        self._scale = (scale if self.complete else scale.masked_fill_(~self.reliable, 0.0)).unsqueeze(-1)  # (G, R, 1)
        self._all_means = (odd @ table.both).mul_(self._scale)
        self.mean = self._visible(self._all_means)
        self._kept = (weights, even, odd) if keep else None

    def _left(self, values: Tensor) -> Tensor:
        return values[..., : self._middle]

    def _right(self, values: Tensor) -> Tensor:
        return values[..., self._middle :]

    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """``u, u'`` side by side, ``(blocks, G, R, A + B)``; even and odd parts of ``u V, u' W``, ``(G, R, A + B)``."""
        if self._kept is not None:
            return self._kept
        weights = field_tables(self.fields, self.hidden, self.table.blocks)
        even, odd, _ = self._sums(weights)
        return weights, even, odd

    def _sums(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Even and odd parts of ``u V, u' W``, and what the products of even factors give to ``Z``, ``(G, R)``."""
        sums = self._contracted(weights)
        if self.table.blocks == 1:
            whole = weights[0] * sums[0]
            return whole, whole, self._left(whole).sum(-1)
        even = weights[0] * sums[0]
        cosh = self._left(even).sum(-1)
        return even.addcmul_(weights[1], sums[1]), _odd(weights, sums), cosh

    def _contracted(self, weights: Tensor) -> Tensor:
        """``C`` times the right of the weights and ``C^T`` times the left, side by side as they are."""
        flat = weights.flatten(0, 1)
        left, right = self._left(flat), self._right(flat)
        if self.table.whole:
            ((_, tile),) = self.table.tiles()
            return torch.cat([torch.bmm(right, tile.mT), torch.bmm(left, tile)], -1).view(weights.shape)
        sums = torch.zeros_like(left), torch.zeros_like(right)
        for rows, tile in self.table.tiles():
            torch.bmm(right, tile.mT, out=sums[0][..., rows])
            sums[1].baddbmm_(left[..., rows], tile)
        return torch.cat(sums, -1).view(weights.shape)

    def _is_reliable(self, even: Tensor) -> Tensor:
        limits = torch.finfo(even.dtype)
        # What 2**n terms, each lost below the floor, can amount to, must not show.
        lowest = 4 * 2.0 ** self.fields.shape[-1] * floor(even.dtype) / limits.eps
        if self.table.blocks == 1:
            return self._z > lowest
        return self._z > (even / self.MAX_CANCELLATION).clamp_min_(lowest)

    def _respond(self, grad: Tensor, with_pairs: bool) -> tuple[Tensor, Tensor | None]:
        weights, even, _ = self._tables()
        table, a = self.table, self.table.num_left
        mean_f = (grad * self.mean).sum(-1, keepdim=True)  # (G, R, 1)
        f = (grad * self._scale) @ table.both.mT  # f_L / Z and f_R / Z side by side
        moved = _times_odd(weights, f)
        self._right(moved).addcmul_(self._right(weights), mean_f * self._scale, value=-1.0)
        mixed = _odd(weights, self._contracted(moved)).addcmul_(even, f)
        response = mixed @ table.both
        response[..., a:].addcmul_(self._all_means[..., a:], mean_f, value=-1.0)
        return response, self._pair_sums(weights, moved) if with_pairs else None

    def _pair_sums(self, weights: Tensor, moved: Tensor) -> Tensor:
        """``sum_{r, s} s_k s_l C (u y' + y u')``, ``(G, n, n)``."""
        table, a = self.table, self.table.num_left
        flat, flat_moved = weights.flatten(0, 1), moved.flatten(0, 1)
        left, right = self._left(flat).mT, self._right(flat)
        moved_left, moved_right = self._left(flat_moved).mT, self._right(flat_moved)
        in_left: list[Tensor] = []
        in_right, across = [], []
        for rows, tile in table.tiles():
            outer = torch.bmm(left[:, rows], moved_right).baddbmm_(moved_left[:, rows], right)  # (blocks * G, T, B)
            tile, outer = (x.unflatten(0, weights.shape[:2]) for x in (tile, outer))
            across.append(table.left[rows].mT @ (_odd(tile, outer) @ table.right))
            outer.mul_(tile)
            in_left.append(outer.sum((0, -1)))
            in_right.append(outer.sum((0, -2)))
        within = torch.cat([*in_left, sum(in_right[1:], in_right[0])], -1)  # (G, A + B)
        pairs = table.both.mT @ (within.unsqueeze(-1) * table.both)
        cross = sum(across[1:], across[0])
        pairs[:, :a, a:] = cross
        pairs[:, a:, :a] = cross.mT
        return pairs

    def left_marginal(self) -> Tensor:
        _, even, odd = self._tables()
        odd = self._left(odd) * self._scale
        if self.table.blocks == 1:
            return odd
        even = self._left(even) * self._scale
        return torch.cat([even + odd, (even - odd).flip(-1)], -1).mul_(0.5).clamp_min_(0.0)

    def log_partition(self) -> Tensor:
        log_z = self._z.log() + self._field_size() + self.table.shift[:, None] - self.offset
        return torch.where(self.reliable, log_z, 0.0)

    def entropy(self) -> Tensor:
        weights, _, _ = self._tables()
        flat, exponent = weights.flatten(0, 1), torch.zeros_like(self._z)
        for rows, tile in self.table.energy_tiles():
            pull = torch.bmm(self._right(flat), tile.mT).unflatten(0, weights.shape[:2])
            exponent += pull.mul_(self._left(weights)[..., rows]).sum((0, -1))
        field_part = self._field_size() - (self.fields * self._all_means).sum(-1)
        entropy = self._z.log() + field_part - exponent * self._scale.squeeze(-1)
        return torch.where(self.reliable, entropy, 0.0)

    def _field_size(self) -> Tensor:
        return self.fields.abs().sum(-1)


def _odd(x: Tensor, y: Tensor) -> Tensor:
    """The part of ``x y`` that an odd function sees, the products of unlike parity: ``(blocks, ...)`` to ``(...)``."""
    if x.shape[0] == 1:
        return x[0] * y[0]
    (x_even, x_odd), (y_even, y_odd) = x.unbind(), y.unbind()
    return (x_even * y_odd).addcmul_(x_odd, y_even)


def _times_odd(table: Tensor, f: Tensor) -> Tensor:
    """A table times an odd function ``f (G, R, A + B)``: the parity blocks trade places."""
    if table.shape[0] == 1:
        return table * f
    result = torch.empty_like(table)
    torch.mul(table[1], f, out=result[0])
    torch.mul(table[0], f, out=result[1])
    return result
