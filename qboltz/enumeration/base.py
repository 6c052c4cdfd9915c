"""What every way of summing over configurations answers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Factors(ABC):
    r"""Sums over all configurations of ``R`` rows in each of ``G`` groups; a group shares its couplings.

    A hidden spin is pinned to -1, and the fields of the others are compensated for what it would do to them,
    ``h_j + sum_{k hidden} J_jk``: the same distribution of the others as with the spin removed, without touching the
    couplings that the rows share. All answers are 0 where a row is not ``reliable`` and where a spin is hidden.

    Attributes:
        reliable: ``(G, R)`` boolean, rows in which no digits were lost to underflow or cancellation.
        complete: all rows are reliable.
        mean: ``(G, R, n)``, ``<s_j>``.
    """

    reliable: Tensor
    complete: bool = True
    mean: Tensor

    def __init__(self, fields: Tensor, couplings: Tensor, hidden: Tensor | None) -> None:
        self.couplings = couplings
        self.hidden = hidden
        self.fields = fields
        self.offset: Tensor | float = 0.0
        if hidden is not None:
            pinned = hidden.to(fields.dtype)
            pull = pinned @ couplings
            self.fields = (fields + pull).masked_fill_(hidden, 0.0)
            self.offset = 0.5 * (pull * pinned).sum(-1)  # energy of pinned pairs, not part of the model

    @abstractmethod
    def log_partition(self) -> Tensor:
        """``(G, R)``, ``log sum_s exp(-E(s))``."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """``(G, R)``, ``-sum_s p log p`` in nats."""

    @abstractmethod
    def draw(self, shots: int, generator: torch.Generator | None) -> Tensor:
        """Independent samples of the reliable rows, ``(G, R, shots, n)`` int8; hidden spins are -1."""

    @abstractmethod
    def _respond(self, grad: Tensor, with_pairs: bool) -> tuple[Tensor, Tensor | None]:
        """``Cov(f, s_k)`` and, where asked for, ``Cov(f, s_k s_l)`` summed over rows; hidden spins as if visible."""

    def response(self, grad: Tensor) -> Tensor:
        """``Cov(f, s_k)``, ``f = sum_j grad_j s_j``: ``(G, R, n)`` to ``(G, R, n)``."""
        grad = self._visible(grad)
        return self._visible(self._respond(grad, False)[0])

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """``Cov(f, s_k)`` per row and ``Cov(f, s_k s_l)`` summed over rows, ``(G, n, n)`` with zero diagonal."""
        grad = self._visible(grad)
        grad_fields, pairs = self._respond(grad, True)
        assert pairs is not None
        grad_fields = self._visible(grad_fields)
        if self.hidden is not None:
            # A pinned s_k = -1 turned Cov(f, s_j s_k) into -Cov(f, s_j); such pairs are not part of the model.
            stray = grad_fields.mT @ self.hidden.to(grad.dtype)
            pairs = pairs + stray + stray.mT
        pairs.diagonal(dim1=-2, dim2=-1).zero_()
        return grad_fields, pairs

    def covariance(self) -> Tensor:
        """``(G, R, n, n)``, ``<s_j s_k> - <s_j><s_k>``: the response to each spin in turn."""
        num_spins = self.fields.shape[-1]
        grad = torch.zeros_like(self.mean)
        columns = []
        for spin in range(num_spins):
            grad[..., spin] = 1.0
            columns.append(self.response(grad))
            grad[..., spin] = 0.0
        covariance = torch.stack(columns, -1)
        return 0.5 * (covariance + covariance.mT)

    def _visible(self, values: Tensor) -> Tensor:
        values = values.to(self.fields.dtype)
        return values if self.hidden is None else values.masked_fill(self.hidden, 0.0)
