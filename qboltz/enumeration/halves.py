"""Samples from a model whose left half has a known marginal."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from qboltz.enumeration.base import Factors
from qboltz.enumeration.tables import half_table

#: Entries of a temporary while drawing.
DRAW_ELEMENTS = 2**20


class SplitFactors(Factors):
    r"""Spins in two halves, :math:`p(s) = p(s_L) \, p(s_R | s_L)`, drawn one after the other by inverse CDF in float64.

    The condition enters as fields, :math:`p(s_R | s_L) \propto \exp((h_R + J_{RL} s_L) \cdot s_R + \dots)`, so only
    the marginal of the left half is asked of the sums.
    """

    @abstractmethod
    def left_marginal(self) -> Tensor:
        """``(G, R, 2**(n // 2))``: probabilities of the configurations of the first ``n // 2`` spins."""

    def draw(self, shots: int, generator: torch.Generator | None) -> Tensor:
        groups, rows, n = self.fields.shape
        a = n // 2
        fields, couplings = self.fields.double(), self.couplings.double()
        left, right = (half_table(k, 1, torch.float64, fields.device) for k in (a, n - a))
        within = 0.5 * ((right @ couplings[:, a:, a:]) * right).sum(-1)  # (G, B)
        chosen = _inverse_cdf(self.left_marginal().double().unsqueeze(-2), (groups, rows, shots), generator)
        drawn = torch.empty(groups, rows, shots, n, dtype=torch.int8, device=fields.device)
        drawn[..., :a] = left[chosen]
        wrong = None if self.hidden is None else self.hidden[..., a:].double() @ (right > 0).double().mT > 0
        step = max(1, DRAW_ELEMENTS // max(1, shots * len(right)))
        for group in range(groups):
            for start in range(0, rows, step):
                where = (group, slice(start, start + step))
                pull = drawn[where][..., :a].double() @ couplings[group, :a, a:]  # (r, shots, b)
                logits = (fields[where][:, None, a:] + pull) @ right.mT + within[group]
                if wrong is not None:
                    logits.masked_fill_(wrong[where].unsqueeze(-2), -torch.inf)
                p = torch.softmax(logits, -1)
                drawn[(*where, slice(None), slice(a, None))] = right[_inverse_cdf(p, p.shape[:-1], generator)].to(
                    torch.int8
                )
        return drawn


def _inverse_cdf(p: Tensor, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Indices ``shape`` drawn with probabilities along the last axis of ``p``, ``(*shape, K)`` or one for all draws."""
    cumulative = p.cumsum(-1)
    uniform = torch.rand(shape, dtype=p.dtype, device=p.device, generator=generator)
    if p.shape[:-1] == tuple(shape):
        threshold = (uniform * cumulative[..., -1]).unsqueeze(-1)
        index = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    else:
        cumulative = cumulative.squeeze(-2)
        index = torch.searchsorted(cumulative, uniform * cumulative[..., -1:], right=True)
    return index.clamp_max_(p.shape[-1] - 1)
