"""Enumeration in one piece: every configuration of a few spins."""

from __future__ import annotations

import torch
from torch import Tensor

from qboltz.enumeration.halves import SplitFactors
from qboltz.enumeration.tables import half_table


class DirectFactors(SplitFactors):
    r"""``p = softmax(-E)`` over all :math:`2^n` configurations of every row.

    For sums so small that the fixed cost of the products between half tables is not worth paying.

    Args:
        fields: ``(G, R, n)``.
        couplings: ``(G, n, n)``.
        hidden: ``(G, R, n)`` boolean or ``None``.
        keep: keep the probabilities for the backward pass, otherwise make them again.
    """

    def __init__(self, fields: Tensor, couplings: Tensor, hidden: Tensor | None, keep: bool = True) -> None:
        super().__init__(fields, couplings, hidden)
        self._states = half_table(fields.shape[-1], 1, fields.dtype, fields.device)  # (2**n, n)
        self.reliable = torch.ones(fields.shape[:2], dtype=torch.bool, device=fields.device)
        p = self._probabilities()
        self._all_means = p @ self._states
        self.mean = self._visible(self._all_means)
        self._kept = p if keep else None

    def _log_weights(self) -> Tensor:
        """``-E`` of every configuration, ``(G, R, 2**n)``; minus infinity where a hidden spin is +1."""
        states = self._states
        energy = ((states @ self.couplings) * states).sum(-1).mul_(0.5)
        log_weights = torch.baddbmm(energy.unsqueeze(1), self.fields, states.mT.expand(len(energy), -1, -1))
        if self.hidden is not None:
            wrong = self.hidden.to(states.dtype) @ (states > 0).to(states.dtype).mT > 0
            log_weights.masked_fill_(wrong, -torch.inf)
        return log_weights

    def _probabilities(self) -> Tensor:
        return torch.softmax(self._log_weights(), -1)

    def _respond(self, grad: Tensor, with_pairs: bool) -> tuple[Tensor, Tensor | None]:
        p = self._probabilities() if self._kept is None else self._kept
        states = self._states
        moved = (grad @ states.mT).sub_((grad * self.mean).sum(-1, keepdim=True)).mul_(p)  # (f - <f>) p
        response = moved @ states
        return response, states.mT @ (moved.sum(1).unsqueeze(-1) * states) if with_pairs else None

    def left_marginal(self) -> Tensor:
        p = self._probabilities() if self._kept is None else self._kept
        groups, rows, n = self.fields.shape
        return p.view(groups, rows, -1, 2 ** (n // 2)).sum(-2)

    def log_partition(self) -> Tensor:
        log_z: Tensor = torch.logsumexp(self._log_weights(), -1) - self.offset
        return log_z

    def entropy(self) -> Tensor:
        p = self._probabilities() if self._kept is None else self._kept
        entropy: Tensor = -torch.special.xlogy(p, p).sum(-1)
        return entropy
