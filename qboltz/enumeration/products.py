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
        self._shape = (table.blocks, *fields.shape[:2])
        tables = self._tables()
        u, right, v, w = tables
        parts = (u * v).sum(-1)  # (blocks, G, R)
        self._z = parts.sum(0) if table.blocks == 2 else parts[0]
        self._field_size = self.fields.abs().sum(-1)
        self.reliable = self._is_reliable(parts[0])
        self._scale = torch.where(self.reliable, self._z.reciprocal(), 0.0).unsqueeze(-1)  # (G, R, 1)
        means = torch.cat([_odd(u, v) @ table.left, _odd(right, w) @ table.right], -1)
        self._all_means = means.mul_(self._scale)
        self.mean = self._visible(self._all_means)
        self._kept = tables if keep else None

    def _tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``u, u', V, W``, each ``(blocks, G, R, A or B)``."""
        u, right = field_tables(self.fields, self.hidden, self.table.blocks)
        return u, right, *self._contracted(u, right)

    def _contracted(
        self, left: Tensor, right: Tensor, onto: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """``C right`` and ``C^T left``, added to the tables given."""
        left, right = left.flatten(0, 1), right.flatten(0, 1)
        if self.table.whole and onto is None:
            ((_, tile),) = self.table.tiles()
            sums = torch.bmm(right, tile.mT), torch.bmm(left, tile)
        else:
            sums = (
                (torch.zeros_like(left), torch.zeros_like(right))
                if onto is None
                else (onto[0].flatten(0, 1), onto[1].flatten(0, 1))
            )
            for rows, tile in self.table.tiles():
                sums[0][..., rows].baddbmm_(right, tile.mT)
                sums[1].baddbmm_(left[..., rows], tile)
        return sums[0].unflatten(0, self._shape[:2]), sums[1].unflatten(0, self._shape[:2])

    def _is_reliable(self, even: Tensor) -> Tensor:
        limits = torch.finfo(even.dtype)
        # What 2**n terms, each lost below the floor, can amount to, must not show.
        lowest = 4 * 2.0 ** self.fields.shape[-1] * floor(even.dtype) / limits.eps
        if self.table.blocks == 1:
            return self._z > lowest
        return self._z > (even / self.MAX_CANCELLATION).clamp_min_(lowest)

    def _respond(self, grad: Tensor, with_pairs: bool) -> tuple[Tensor, Tensor | None]:
        u, right, v, w = self._tables() if self._kept is None else self._kept
        table, a = self.table, self.table.num_left
        mean_f = (grad * self.mean).sum(-1, keepdim=True)  # (G, R, 1)
        scaled = grad * self._scale
        f_left, f_right = scaled[..., :a] @ table.left.mT, scaled[..., a:] @ table.right.mT
        y_left, y_right = _times_odd(u, f_left), _times_odd(right, f_right)
        y_right.addcmul_(right, mean_f * self._scale, value=-1.0)
        t_left, t_right = self._contracted(y_left, y_right, (_times_odd(v, f_left), _times_odd(w, f_right)))
        grad_left = _odd(u, t_left) @ table.left
        grad_right = (_odd(right, t_right) @ table.right).sub_(self._all_means[..., a:] * mean_f)
        response = torch.cat([grad_left, grad_right], -1)
        return response, self._pair_sums((u, right), (y_left, y_right)) if with_pairs else None

    def _pair_sums(self, tables: tuple[Tensor, Tensor], moved: tuple[Tensor, Tensor]) -> Tensor:
        """``sum_{r, s} s_k s_l C (u y' + y u')``, ``(G, n, n)``."""
        table = self.table
        (u, right), (y_left, y_right) = ((x.flatten(0, 1) for x in pair) for pair in (tables, moved))
        in_left: list[Tensor] = []
        in_right, across = [], []
        for rows, tile in table.tiles():
            outer = torch.bmm(u[..., rows].mT, y_right).baddbmm_(y_left[..., rows].mT, right)  # (blocks * G, T, B)
            tile, outer = (x.unflatten(0, self._shape[:2]) for x in (tile, outer))
            odd = _odd(tile, outer)
            even = outer.mul_(tile).sum(0)
            in_left.append(even.sum(-1))
            in_right.append(even.sum(-2))
            across.append(table.left[rows].mT @ (odd @ table.right))
        cross = sum(across[1:], across[0])
        left = table.left.mT @ (torch.cat(in_left, -1).unsqueeze(-1) * table.left)
        both = table.right.mT @ (sum(in_right[1:], in_right[0]).unsqueeze(-1) * table.right)
        return torch.cat([torch.cat([left, cross], -1), torch.cat([cross.mT, both], -1)], -2)

    def left_marginal(self) -> Tensor:
        u, _, v, _ = self._tables() if self._kept is None else self._kept
        odd = _odd(u, v) * self._scale
        if self.table.blocks == 1:
            return odd
        even = (u * v).sum(0) * self._scale
        return torch.cat([even + odd, (even - odd).flip(-1)], -1).mul_(0.5).clamp_min_(0.0)

    def log_partition(self) -> Tensor:
        log_z = self._z.log() + self._field_size + self.table.shift[:, None] - self.offset
        return torch.where(self.reliable, log_z, 0.0)

    def entropy(self) -> Tensor:
        u, right, _, _ = self._tables() if self._kept is None else self._kept
        exponent = torch.zeros_like(self._z)
        for rows, tile in self.table.energy_tiles():
            pull = torch.bmm(right.flatten(0, 1), tile.mT).unflatten(0, self._shape[:2])
            exponent += pull.mul_(u[..., rows]).sum((0, -1))
        field_part = self._field_size - (self.fields * self._all_means).sum(-1)
        entropy = self._z.log() + field_part - exponent * self._scale.squeeze(-1)
        return torch.where(self.reliable, entropy, 0.0)


def _odd(x: Tensor, y: Tensor) -> Tensor:
    """The part of ``x y`` that an odd function sees, the products of unlike parity: ``(blocks, ...)`` to ``(...)``."""
    if len(x) == 1:
        return x[0] * y[0]
    return (x[0] * y[1]).addcmul_(x[1], y[0])


def _times_odd(table: Tensor, f: Tensor) -> Tensor:
    """A table times an odd function ``f (G, R, A)``: the parity blocks trade places."""
    if len(table) == 1:
        return table * f
    result = torch.empty_like(table)
    torch.mul(table[1], f, out=result[0])
    torch.mul(table[0], f, out=result[1])
    return result
