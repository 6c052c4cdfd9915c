"""What a sampled ensemble averages, for some of its rows at a time: moments, their errors and covariances."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qboltz.readout import undo_readout
from qboltz.spins import spin_table


class Rows(NamedTuple):
    """Some rows of some groups, and their samples.

    Attributes:
        where: which ones, of groups and of rows.
        fields: ``(g, r, n)``.
        couplings: ``(g, n, n)``.
        visible: ``(g, r, n)`` boolean or ``None``.
        spins: ``(g, r, M, n)``, or ``(M, n)``: one table for all rows.
        weights: ``(g, r, M)`` or ``None`` for equal ones.
    """

    where: tuple[slice, slice]
    fields: Tensor
    couplings: Tensor
    visible: Tensor | None
    spins: Tensor
    weights: Tensor | None


class Piece:
    """Averages over the samples of some rows, with one of the two estimators."""

    def __init__(self, rows: Rows, conditional: bool) -> None:
        self.where = rows.where
        self.conditional = conditional
        self.fields = rows.fields.unsqueeze(-2)  # (g, r, 1, n)
        self.couplings = rows.couplings
        self.visible = None if rows.visible is None else rows.visible.unsqueeze(-2)  # (g, r, 1, n)
        self.spins = rows.spins.to(rows.fields.dtype)  # (M, n) for a table, else (g, r, M, n)
        if self.visible is not None:
            self.spins = self.spins * self.visible
        self.weights = None if rows.weights is None else rows.weights.unsqueeze(-1)  # (g, r, M, 1)
        self.num_samples = rows.spins.shape[-2]
        self.unbiased = self.num_samples / max(self.num_samples - 1, 1) if rows.weights is None else 1.0

    def magnetization(self) -> Tensor:
        """``(g, r, n)``, 0 where not visible."""
        return self.mean(self.values())

    def standard_error(self) -> Tensor:
        """``sqrt(Var / M)``, ``(g, r, n)``; 0 with weights."""
        if self.weights is not None:
            return torch.zeros_like(self.fields.squeeze(-2))
        return (self.values().var(-2, correction=1) / self.num_samples).sqrt()

    def values(self) -> Tensor:
        """Per sample, what is averaged to give the magnetization: ``(g, r, M, n)``, 0 where not visible."""
        if not self.conditional:
            return self.spins.expand(*self.fields.shape[:2], -1, -1)
        means = torch.tanh(self.fields + self._local_fields())
        return means if self.visible is None else means * self.visible

    def _local_fields(self) -> Tensor:
        if self.spins.dim() == 2:
            return (self.spins @ self.couplings).unsqueeze(1)  # (g, 1, M, n)
        return (self.spins.flatten(1, 2) @ self.couplings).view(self.spins.shape)

    def weighted(self, values: Tensor) -> Tensor:
        """Values times the weight of their sample: a plain sum over samples is then the average."""
        return values / values.shape[-2] if self.weights is None else values * self.weights

    def mean(self, values: Tensor) -> Tensor:
        """Average over samples, ``(g, r, M, k)`` to ``(g, r, k)``."""
        return values.mean(-2) if self.weights is None else (self.weights.mT @ values).squeeze(-2)

    def centered(self, values: Tensor) -> Tensor:
        """Values less their average."""
        return values - self.mean(values).unsqueeze(-2)

    def covariances(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """``Cov(f, s_k)`` per row, ``(g, r, n)``, and ``Cov(f, s_k s_l)`` summed over the rows, ``(g, n, n)``.

        The second is one of two orders of ``k, l``: the mean with its transpose is meant.
        """
        f = self.spins @ g.unsqueeze(-1)  # (g, r, M, 1)
        g = g.unsqueeze(-2)  # (g, r, 1, n)
        if not self.conditional:
            response = self.weighted(self.centered(f)) * self.unbiased * self.spins  # w (f - <f>) s_k
            return response.sum(-2), self._pair_sums(response)
        # In place, since each temporary is as large as all samples. f^(k) - <f^(k)> sums to zero, so the mean of
        # its product with t is the covariance with t, and one response serves both gradients.
        t = self.values()
        response = torch.sub(t, self.spins).mul_(g).add_(f)  # f^(k)
        response.sub_(self.mean(response).unsqueeze(-2)).mul_(t).mul_(self.unbiased)
        response.addcmul_(t.square_().neg_().add_(1), g)  # + g_k (1 - t_k^2)
        response = self.weighted(response)
        return response.sum(-2), self._pair_sums(response)

    def _pair_sums(self, response: Tensor) -> Tensor:
        """``sum_{r, M} response_k s_l``: one matrix product over all samples of all rows."""
        if self.spins.dim() == 2:
            return response.sum(1).mT @ self.spins
        return response.flatten(1, 2).mT @ self.spins.flatten(1, 2)


class PlainCorrected(Piece):
    r"""Plain averages of measured spins without their readout errors, for any number of spins.

    The corrected spins :math:`c_k = (s_k - b_k) / a_k` take the place of the spins. Products of different ones are
    unbiased; equal ones are not, since :math:`s_k^2 = 1` and :math:`E[c_k^2] > 1`. So

    .. math::
        \mathrm{Cov}(f, s_k) = \mathrm{Cov}(f_c, c_k) + g_k E[1 - c_k^2], \qquad
        \mathrm{Cov}(f, s_k s_l) = \mathrm{Cov}(f_c, c_k c_l) + g_k E[(1 - c_k^2) c_l] + g_l E[(1 - c_l^2) c_k].

    Args:
        rows: the measured spins.
        gain: ``a``, ``(g, r, n)``.
        offset: ``b``, likewise.
    """

    def __init__(self, rows: Rows, gain: Tensor, offset: Tensor) -> None:
        super().__init__(rows, conditional=False)
        self.spins = (self.spins - offset.unsqueeze(-2)) / gain.unsqueeze(-2)
        if self.visible is not None:
            self.spins = self.spins * self.visible

    def covariances(self, g: Tensor) -> tuple[Tensor, Tensor]:
        f = self.spins @ g.unsqueeze(-1)
        response = self.weighted(self.centered(f)) * self.unbiased * self.spins
        equal = self.weighted((1 - self.spins.square()) * g.unsqueeze(-2))
        # Twice in the pairs: of f c_k c_l both orders are averaged, of the others they are added.
        return (response + equal).sum(-2), self._pair_sums(response + 2 * equal)


class ConditionalCorrected(Piece):
    r"""Conditional averages of measured spins without their readout errors.

    :math:`t_k` is no linear function of the other spins, so it is corrected as a function of the configuration: over
    all :math:`2^n` of them, with the quasi-distribution :math:`W = (\otimes_k A_k^{-1}) \hat q` of the histogram
    :math:`\hat q`. Averages are linear in :math:`\hat q` and thereby exactly unbiased. A product of two averages
    :math:`\langle F \rangle \langle T \rangle` over the same ``M`` samples is not: with
    :math:`\tilde F = \otimes_k A_k^{-T} F` its unbiased form is

    .. math:: \frac{M \langle F \rangle \langle T \rangle - \sum_c v_c T(c)}{M - 1}, \qquad
        v = (\otimes_k A_k^{-1}) (\hat q \tilde F).

    Args:
        rows: the measured spins.
        gain: ``a``, ``(g, r, n)``.
        offset: ``b``, likewise.
    """

    def __init__(self, rows: Rows, gain: Tensor, offset: Tensor) -> None:
        n = rows.couplings.shape[-1]
        self.gain, self.offset = gain, offset
        self.samples = rows.spins.shape[-2] if rows.weights is None else None
        self.histogram = histogram(rows)
        table = spin_table(n, dtype=rows.fields.dtype, device=rows.fields.device)
        weights = undo_readout(self.histogram, gain, offset)
        super().__init__(rows._replace(spins=table, weights=weights), conditional=True)

    def standard_error(self) -> Tensor:
        if self.samples is None:
            return super().standard_error()
        if self.samples == 1:
            return torch.full_like(self.gain, torch.nan)
        undone = self._undone(self.values())
        first, second = (self.histogram.unsqueeze(-2) @ values for values in (undone, undone.square()))
        variance = (second - first.square()).clamp(min=0).squeeze(-2) / (self.samples - 1)
        return variance.sqrt()

    def _undone(self, functions: Tensor) -> Tensor:
        """``(g, r, 2**n, k)`` functions of the configuration as functions of what is measured."""
        gain, offset = self.gain.unsqueeze(-2), self.offset.unsqueeze(-2)
        return undo_readout(functions.mT, gain, offset, of_function=True).mT

    def covariances(self, g: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.weights
        assert weights is not None
        f = self.spins @ g.unsqueeze(-1)
        g = g.unsqueeze(-2)
        t = self.values()
        others = f + g * (t - self.spins)  # f^(k)
        product = self.mean(others).unsqueeze(-2) * weights
        if self.samples is not None:
            measured = (self.histogram.unsqueeze(-1) * self._undone(others)).mT
            same = undo_readout(measured, self.gain.unsqueeze(-2), self.offset.unsqueeze(-2)).mT
            product = (self.samples * product - same) / max(self.samples - 1, 1)
        response = weights * (others * t + g * (1 - t.square())) - product * t
        return response.sum(-2), self._pair_sums(response)


def histogram(rows: Rows) -> Tensor:
    """Shares of all configurations among the samples, ``(g, r, 2**n)``, in the order of ``spin_table``."""
    lead, n = rows.fields.shape[:2], rows.fields.shape[-1]
    numbers = ((rows.spins < 0).long() << torch.arange(n, device=rows.spins.device)).sum(-1).expand(*lead, -1)
    if rows.weights is None:
        shares = torch.full_like(numbers, 1 / rows.spins.shape[-2], dtype=rows.fields.dtype)
    else:
        shares = rows.weights.to(rows.fields.dtype).expand(numbers.shape)
    return shares.new_zeros(*lead, 2**n).scatter_add_(-1, numbers, shares)
