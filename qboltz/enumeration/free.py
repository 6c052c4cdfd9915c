"""Closed form where no spin is coupled to another: any number of spins."""

from __future__ import annotations

import torch
from torch import Tensor

from qboltz.enumeration.base import Factors


class FreeFactors(Factors):
    r"""``J = 0``: :math:`p(s) = \prod_j p_j(s_j)`, :math:`m_j = \tanh h_j`, :math:`Z = \prod_j 2 \cosh h_j`."""

    def __init__(self, fields: Tensor, couplings: Tensor, hidden: Tensor | None) -> None:
        super().__init__(fields, couplings, hidden)
        self.mean = torch.tanh(self.fields)  # 0 where hidden
        self._pinned_mean = self.mean if hidden is None else self.mean.masked_fill(hidden, -1.0)
        decay = torch.exp(-2 * self.fields.abs())
        self._variance = self._visible(4 * decay / (1 + decay) ** 2)  # 1 - tanh^2 without cancellation
        self._log_z = self._visible(self.fields.abs() + torch.log1p(decay)).sum(-1)
        self.reliable = torch.ones(fields.shape[:2], dtype=torch.bool, device=fields.device)

    def log_partition(self) -> Tensor:
        return self._log_z

    def entropy(self) -> Tensor:
        return self._log_z - (self.fields * self.mean).sum(-1)

    def draw(self, shots: int, generator: torch.Generator | None) -> Tensor:
        up = torch.sigmoid(2 * self.fields.double()).unsqueeze(-2)  # (G, R, 1, n)
        if self.hidden is not None:
            up = up.masked_fill(self.hidden.unsqueeze(-2), 0.0)
        shape = (*self.fields.shape[:2], shots, self.fields.shape[-1])
        uniform = torch.rand(shape, dtype=torch.float64, device=up.device, generator=generator)
        return (2 * (uniform < up) - 1).to(torch.int8)

    def _respond(self, grad: Tensor, with_pairs: bool) -> tuple[Tensor, Tensor | None]:
        response = grad * self._variance
        if not with_pairs:
            return response, None
        half = response.mT @ self._pinned_mean
        return response, half + half.mT

    def covariance(self) -> Tensor:
        return torch.diag_embed(self._variance)
