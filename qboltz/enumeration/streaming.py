"""Enumeration in logarithms, for rows whose numbers no floating point range can hold side by side."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from qboltz.enumeration.halves import SplitFactors
from qboltz.enumeration.tables import TILE_ELEMENTS, CouplingTable, half_table


class StreamedFactors(SplitFactors):
    r"""Streaming log-sum-exp over the configurations, row by row: slow, and right for any finite fields and couplings.

    ``log p(s_L, s_R) = h_L s_L + h_R s_R + couplings - log Z`` is formed tile by tile, never stored whole.

    Args:
        table: plain (one block) coupling table, best in float64.
        fields: ``(G, R, n)``.
        hidden: ``(G, R, n)`` boolean or ``None``.
    """

    def __init__(self, table: CouplingTable, fields: Tensor, hidden: Tensor | None) -> None:
        super().__init__(fields, table.couplings, hidden)
        self.table = table
        self.reliable = torch.ones(fields.shape[:2], dtype=torch.bool, device=fields.device)
        a = table.num_left
        self._left, self._right = self._half_exponents(slice(None, a)), self._half_exponents(slice(a, None))
        self._log_left = torch.empty_like(self._left)
        for where, rows, logits in self._logits():
            self._log_left[(*where, rows)] = torch.logsumexp(logits, -1)
        self._relative = torch.logsumexp(self._log_left, -1)  # (G, R): log Z - shift + pinned pairs
        right = torch.zeros_like(self._right)
        for where, _, p in self._probabilities():
            right[where] += p.sum(-2)
        self._all_means = torch.cat([self.left_marginal() @ table.left, right @ table.right], -1)
        self.mean = self._visible(self._all_means)

    def _half_exponents(self, spins: slice) -> Tensor:
        part = self.fields[..., spins]
        table = half_table(part.shape[-1], 1, part.dtype, part.device)
        exponents = part @ table.mT
        if self.hidden is None:
            return exponents
        wrong = self.hidden[..., spins].to(part.dtype) @ (table > 0).to(part.dtype).mT > 0
        return exponents.masked_fill_(wrong, -torch.inf)

    def _logits(self) -> Iterator[tuple[tuple[slice, slice], slice, Tensor]]:
        """Where in the batch, which left configurations, and their ``-E - shift``: ``(g, r, T, B)``."""
        groups, num_rows = self.fields.shape[:2]
        for left_rows, coupling in self.table.exponents():
            step = max(1, TILE_ELEMENTS // coupling[0, 0].numel())
            for group in range(groups):
                for start in range(0, num_rows, step):
                    where = (slice(group, group + 1), slice(start, start + step))
                    left = self._left[(*where, left_rows)].unsqueeze(-1)
                    yield where, left_rows, coupling[0, group] + left + self._right[where].unsqueeze(-2)

    def _probabilities(self) -> Iterator[tuple[tuple[slice, slice], slice, Tensor]]:
        for where, rows, logits in self._logits():
            yield where, rows, logits.sub_(self._relative[where][..., None, None]).exp_()

    def left_marginal(self) -> Tensor:
        return torch.exp(self._log_left - self._relative.unsqueeze(-1))

    def log_partition(self) -> Tensor:
        log_z: Tensor = self._relative + self.table.shift[:, None] - self.offset
        return log_z

    def entropy(self) -> Tensor:
        total = torch.zeros_like(self._relative)
        for where, _, logits in self._logits():
            log_p = logits.sub_(self._relative[where][..., None, None])
            total[where] -= torch.special.xlogy(log_p.exp(), log_p.exp()).sum((-2, -1))
        return total

    def _respond(self, grad: Tensor, with_pairs: bool) -> tuple[Tensor, Tensor | None]:
        table, a = self.table, self.table.num_left
        f_left, f_right = grad[..., :a] @ table.left.mT, grad[..., a:] @ table.right.mT
        mean_f = (grad * self.mean).sum(-1)
        left, right = torch.zeros_like(f_left), torch.zeros_like(f_right)  # f p, summed over the other half
        cross = grad.new_zeros(len(grad), a, grad.shape[-1] - a)
        for where, rows, p in self._probabilities():
            f = f_left[(*where, rows)].unsqueeze(-1) + f_right[where].unsqueeze(-2)
            fp = p.mul_(f.sub_(mean_f[where][..., None, None]))
            left[(*where, rows)] = fp.sum(-1)
            right[where] += fp.sum(-2)
            if with_pairs:
                cross[where[0]] += table.left[rows].mT @ (fp.sum(1) @ table.right)
        response = torch.cat([left @ table.left, right @ table.right], -1)
        if not with_pairs:
            return response, None
        within_left = table.left.mT @ (left.sum(1).unsqueeze(-1) * table.left)
        within_right = table.right.mT @ (right.sum(1).unsqueeze(-1) * table.right)
        upper = torch.cat([within_left, cross], -1)
        return response, torch.cat([upper, torch.cat([cross.mT, within_right], -1)], -2)
