"""What a solver returns: something that stands for exp(-E)/Z and answers two questions about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from qboltz.errors import unknown_name
from qboltz.ising import IsingModel
from qboltz.moments import ConditionalCorrected, Piece, PlainCorrected, Rows
from qboltz.readout import ReadoutErrors, check_table_spins

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
        readout: errors with which the spins were read; moments, standard errors and gradients are then those of the
            spins before they were read. In closed form for ``plain``; over all ``2**n`` configurations, up to 14 spins,
            for ``conditional``.
        polish: Gibbs sweeps that the spins have had, for the record; not with ``readout``: swept spins are not as read.

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
        *,
        readout: ReadoutErrors | None = None,
        polish: int = 0,
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
        self.readout = readout
        self.polish = polish
        self._gain_and_offset = None
        if readout is not None:
            if polish:
                raise ValueError(f"polish must be 0 with readout: swept spins are not as they were read, got {polish}.")
            if estimator == "conditional":
                check_table_spins(groups.num_spins)
            shape = groups.num_groups, groups.num_rows, groups.num_spins
            self._gain_and_offset = readout.for_groups(shape, groups.fields)

    @property
    def num_samples(self) -> int:
        """``M``: drawn samples per model, or configurations when weights are given."""
        return self.spins.shape[-2]

    def magnetization(self) -> Tensor:
        groups = self.model.groups
        mean = torch.empty_like(groups.fields)
        for piece in self._pieces():
            mean[piece.where] = piece.magnetization()
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
                error[piece.where] = piece.standard_error()
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

    def _pieces(self) -> Iterator[Piece]:
        groups = self.model.groups
        over_table = self.readout is not None and self.estimator == "conditional"
        samples = 2**groups.num_spins if over_table else self.num_samples
        rows = max(1, self.chunk_elements // (samples * groups.num_spins))
        whole_groups = max(1, rows // max(1, groups.num_rows))
        for group in range(0, groups.num_groups, whole_groups):
            for row in range(0, groups.num_rows, rows):
                yield self._piece((slice(group, group + whole_groups), slice(row, row + rows)))

    def _piece(self, where: tuple[slice, slice]) -> Piece:
        groups = self.model.groups
        rows = Rows(
            where,
            groups.fields[where],
            groups.couplings[where[0]],
            None if groups.visible is None else groups.visible[where],
            self.spins if self.spins.dim() == 2 else self.spins[where],
            None if self.weights is None else self.weights[where],
        )
        conditional = self.estimator == "conditional"
        if self._gain_and_offset is None:
            return Piece(rows, conditional)
        gain, offset = (values[where] for values in self._gain_and_offset)
        return ConditionalCorrected(rows, gain, offset) if conditional else PlainCorrected(rows, gain, offset)

    def __repr__(self) -> str:
        groups = self.model.groups
        return (
            f"{type(self).__name__}({groups.num_groups * groups.num_rows} models of {groups.num_spins} spins, "
            f"{self.num_samples} {'samples' if self.weights is None else 'weighted configurations'}, "
            f"estimator={self.estimator!r}, polish={self.polish}, readout_corrected={self.readout is not None})"
        )
