"""What a solver returns: something that stands for exp(-E)/Z and answers two questions about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from qboltz.errors import unknown_name
from qboltz.ising import IsingModel

Estimator = Literal["conditional", "plain"]
ESTIMATORS: tuple[Estimator, ...] = ("conditional", "plain")


class SpinEnsemble(ABC):
    r"""A batch of distributions over spins, one per model of ``model``, at inverse temperature 1.

    Attributes:
        model: the batch of Ising models the ensemble stands for.
    """

    model: IsingModel

    @abstractmethod
    def magnetization(self) -> Tensor:
        """``m_j = <s_j>``, shape and dtype of ``model.fields``; 0 for a spin that is not visible."""

    def standard_error(self) -> Tensor:
        """Standard error of ``magnetization()`` from shot noise, in its shape; 0 where nothing is drawn."""
        return torch.zeros_like(self.model.fields)

    @abstractmethod
    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        r"""Gradients of ``sum_j g_j m_j`` for an upstream ``g`` of the shape of ``model.fields``.

        With ``f(s) = sum_j g_j s_j``, linear response of an exponential family gives

        .. math:: \partial_{h_k} = \mathrm{Cov}(f, s_k), \qquad \partial_{J_{kl}} = \tfrac12 \mathrm{Cov}(f, s_k s_l),

        the half since ``J_kl`` and ``J_lk`` are two entries of one symmetric matrix: each gets its share, so that the
        chain rule holds through ``triu + triu.T``.

        Returns:
            Gradients of the shapes of ``model.fields`` and ``model.couplings`` (summed over models that share them).
        """


@runtime_checkable
class Solver(Protocol):
    """Anything that turns a batch of Ising models into an ensemble. The promise: it stands for ``exp(-E)/Z``."""

    def solve(self, model: IsingModel) -> SpinEnsemble:
        """Return the ensemble of every model in the batch."""
        ...


class SampledEnsemble(SpinEnsemble):
    r"""Configurations with weights, and the estimators of moments and gradients that go with them.

    With ``t_k = tanh(h_k + sum_l J_kl s_l)``, the mean of ``s_k`` given all other spins:

    * ``plain``: ``m_k = E[s_k]``; gradients are sample covariances of ``f`` with ``s_k`` and ``s_k s_l``.
    * ``conditional`` (Rao-Blackwell, Callen 1963): ``m_k = E[t_k]``, and the same covariances by the law of total
      covariance given all spins but ``k``. With ``f^(k) = f - g_k s_k + g_k t_k``:

      .. math::
        \mathrm{Cov}(f, s_k) = \mathrm{Cov}(f^{(k)}, t_k) + g_k E[1 - t_k^2], \qquad
        \mathrm{Cov}(f, s_k s_l) = \mathrm{Cov}(f^{(k)}, t_k s_l) + g_k E[(1 - t_k^2) s_l]

      (the second averaged over the two orders of ``k, l``). Both are identities of the Boltzmann distribution, exact
      with one shot when ``J = 0``, and they remove most of the bias of a sampler that is not quite Boltzmann.

    Args:
        model: the models the samples were drawn for.
        spins: ``(G, R, M, n)`` in {-1, +1} (int8 for drawn samples), or ``(M, n)``: one table for all rows.
        weights: ``(G, R, M)``, probabilities of the configurations (they sum to 1); ``None`` for ``M`` equal samples,
            whose covariances are then multiplied by ``M / (M - 1)``.
        estimator: ``"conditional"`` or ``"plain"``.

    The leading ``G, R`` are those of ``model.groups``.
    """

    #: Elements of one temporary (4 MiB in float32, about a cache); larger batches are treated in pieces.
    chunk_elements = 2**20

    def __init__(
        self,
        model: IsingModel,
        spins: Tensor,
        weights: Tensor | None = None,
        estimator: Estimator = "conditional",
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(unknown_name("estimator", estimator, ESTIMATORS))
        groups = model.groups
        shapes = {(groups.num_groups, groups.num_rows), ()}
        if spins.shape[-1] != groups.num_spins or tuple(spins.shape[:-2]) not in shapes:
            raise ValueError(
                f"spins must be ({groups.num_groups}, {groups.num_rows}, samples, {groups.num_spins}) or "
                f"(samples, {groups.num_spins}), got {tuple(spins.shape)}."
            )
        self.model = model
        self.spins = spins
        self.weights = weights
        self.estimator = estimator

    @property
    def num_samples(self) -> int:
        """``M``: drawn samples per model, or configurations when weights are given."""
        return self.spins.shape[-2]

    def magnetization(self) -> Tensor:
        groups = self.model.groups
        mean = torch.empty_like(groups.fields)
        for piece in self._pieces():
            mean[piece.where] = piece.mean(piece.values())
        return groups.unfold(mean)

    def standard_error(self) -> Tensor:
        r"""Standard error of ``magnetization()`` from the spread of the samples, ``sqrt(Var / M)``; 0 with weights.

        It counts sampling noise alone, not the distance of the sampler from the Boltzmann distribution. One sample
        has no spread: the result is then NaN.
        """
        groups = self.model.groups
        error = torch.zeros_like(groups.fields)
        if self.weights is None:
            for piece in self._pieces():
                error[piece.where] = (piece.values().var(-2, correction=1) / self.num_samples).sqrt()
        return groups.unfold(error)

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        groups = self.model.groups
        folded = groups.fold(grad)
        if groups.visible is not None:
            folded = folded * groups.visible
        grad_fields = torch.empty_like(groups.fields)
        pair_sums = torch.zeros_like(groups.couplings)
        for piece in self._pieces():
            field_part, pair_part = piece.covariances(folded[piece.where])
            grad_fields[piece.where] = field_part
            pair_sums[piece.where[0]] += pair_part
        grad_couplings = 0.25 * (pair_sums + pair_sums.mT)
        grad_couplings.diagonal(dim1=-2, dim2=-1).zero_()
        return groups.unfold(grad_fields), groups.unfold_couplings(grad_couplings)

    def _pieces(self) -> Iterator[_Piece]:
        groups = self.model.groups
        rows = max(1, self.chunk_elements // (self.num_samples * groups.num_spins))
        whole_groups = max(1, rows // max(1, groups.num_rows))
        for group in range(0, groups.num_groups, whole_groups):
            for row in range(0, groups.num_rows, rows):
                yield _Piece(self, (slice(group, group + whole_groups), slice(row, row + rows)))


class _Piece:
    """Some rows of some groups: their samples ``(g, r, M, n)`` and what is averaged over them."""

    def __init__(self, ensemble: SampledEnsemble, where: tuple[slice, slice]) -> None:
        groups = ensemble.model.groups
        self.where = where
        self.conditional = ensemble.estimator == "conditional"
        self.fields = groups.fields[where].unsqueeze(-2)  # (g, r, 1, n)
        self.couplings = groups.couplings[where[0]]  # (g, n, n)
        self.visible = None if groups.visible is None else groups.visible[where].unsqueeze(-2)  # (g, r, 1, n)
        drawn = ensemble.spins if ensemble.spins.dim() == 2 else ensemble.spins[where]
        self.spins = drawn.to(groups.fields.dtype)  # (M, n) for a table, else (g, r, M, n)
        if self.visible is not None:
            self.spins = self.spins * self.visible
        self.weights = None if ensemble.weights is None else ensemble.weights[where].unsqueeze(-1)  # (g, r, M, 1)
        samples = ensemble.num_samples
        self.unbiased = samples / max(samples - 1, 1) if self.weights is None else 1.0

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
        return values - self.mean(values).unsqueeze(-2)

    def covariances(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """``Cov(f, s_k)`` per row, ``(g, r, n)``, and ``Cov(f, s_k s_l)`` summed over the rows, ``(g, n, n)``."""
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
