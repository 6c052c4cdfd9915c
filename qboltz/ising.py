"""The model: one Ising model per query, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class IsingModel:
    r"""A batch of Ising models

    .. math::
        E(s) = -\sum_j h_j s_j - \sum_{j<k} J_{jk} s_j s_k, \qquad p(s) = e^{-E(s)} / Z, \qquad s_j \in \{-1, +1\}

    over the *visible* spins only: a spin that is not visible is removed from the sums, with all its couplings.

    Args:
        fields: ``h``, shape ``(..., n)``, in units of the temperature (beta = 1).
        couplings: ``J``, shape ``(..., n, n)``, symmetric with zero diagonal. Its leading dimensions broadcast
            against those of ``fields``; a dimension of size 1 means "shared by all of them".
        visible: boolean, broadcastable to ``(..., n)``; ``None`` means that every spin is visible.

    Raises:
        TypeError: a dtype is wrong (``fields`` and ``couplings`` floating point, ``visible`` boolean).
        ValueError: shapes do not fit, a value is NaN or infinite, ``couplings`` is not symmetric or has a diagonal.

    Source: arXiv:2606.12478, energy of a query and attention weights from its magnetizations.
    """

    fields: Tensor
    couplings: Tensor
    visible: Tensor | None = None

    def __post_init__(self) -> None:
        _check_fields(self.fields)
        _check_couplings(self.couplings, self.fields)
        if self.visible is not None:
            _check_visible(self.visible, self.fields)

    @property
    def num_spins(self) -> int:
        """``n``, visible or not."""
        return self.fields.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions of ``fields``; couplings and mask broadcast to them."""
        return self.fields.shape[:-1]

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in: the wider of both dtypes, at least float32."""
        return torch.promote_types(torch.promote_types(self.fields.dtype, self.couplings.dtype), torch.float32)

    def energy(self, spins: Tensor) -> Tensor:
        r"""``E(s)`` of configurations ``(..., n)`` that broadcast against the batch; invisible spins do not count.

        A table of ``M`` configurations of every model is ``spins`` of shape ``(M, 1, ..., 1, n)``.
        """
        if spins.shape[-1:] != (self.num_spins,):
            raise ValueError(f"spins must be (..., {self.num_spins}), got {tuple(spins.shape)}.")
        s = spins.to(self.dtype)
        if self.visible is not None:
            s = s * self.visible
        field_energy = (self.fields.to(self.dtype) * s).sum(-1)
        coupling_energy = 0.5 * (s * (self.couplings.to(self.dtype) @ s.unsqueeze(-1)).squeeze(-1)).sum(-1)
        return -field_energy - coupling_energy

    def decoupled(self) -> IsingModel:
        """The same visible model with every spin present: ``h_j = 0`` and ``J_jk = 0`` for an invisible ``j``.

        The invisible spins become free (uniform and independent). The couplings then differ from query to query.
        """
        if self.visible is None:
            return self
        visible = self.visible.expand(self.fields.shape)
        pair_visible = visible.unsqueeze(-1) & visible.unsqueeze(-2)
        return IsingModel(self.fields * visible, self.couplings * pair_visible)

    @cached_property
    def groups(self) -> Groups:
        """The batch in canonical form: groups of rows that share their couplings. Solvers work on this."""
        return Groups(self)


class Groups:
    """A batch of models as ``G`` groups of ``R`` rows that share one coupling matrix each.

    Batch dimensions along which ``couplings`` varies become ``G``, all others become ``R``; nothing is copied that
    need not be.

    Attributes:
        fields: ``(G, R, n)``.
        couplings: ``(G, n, n)``.
        visible: ``(G, R, n)`` boolean or ``None``.
    """

    def __init__(self, model: IsingModel) -> None:
        batch = model.batch_shape
        lead = (1,) * (len(batch) + 2 - model.couplings.dim()) + tuple(model.couplings.shape[:-2])
        own = [axis for axis, size in enumerate(lead) if size != 1]
        shared = [axis for axis, size in enumerate(lead) if size == 1]
        self._order = own + shared
        self._inverse = [self._order.index(axis) for axis in range(len(batch))]
        self._permuted = tuple(batch[axis] for axis in self._order)
        self._coupling_shape = model.couplings.shape
        self._coupling_dtype = model.couplings.dtype
        self._field_dtype = model.fields.dtype
        self.num_groups = math.prod(batch[axis] for axis in own)
        self.num_rows = math.prod(batch[axis] for axis in shared)
        self.num_spins = model.num_spins
        self.fields = self._fold(model.fields.detach().to(model.dtype))
        self.couplings = (
            model.couplings.detach().to(model.dtype).reshape(self.num_groups, model.num_spins, model.num_spins)
        )
        self.visible = None if model.visible is None else self._fold(model.visible.expand(model.fields.shape))

    def _fold(self, values: Tensor) -> Tensor:
        permuted = values.permute((*self._order, len(self._order)))
        return permuted.reshape(self.num_groups, self.num_rows, self.num_spins)

    def fold(self, values: Tensor) -> Tensor:
        """A tensor of the shape of ``model.fields`` as ``(G, R, n)``, in the dtype of the computation."""
        return self._fold(values.to(self.fields.dtype))

    def unfold(self, values: Tensor) -> Tensor:
        """``(G, R, n)`` or ``(G, R)`` back to the batch of the model, in the dtype of ``model.fields``."""
        tail = tuple(values.shape[2:])
        unfolded = values.reshape((*self._permuted, *tail))
        order = [*self._inverse, *range(len(self._inverse), unfolded.dim())]
        return unfolded.permute(order).to(self._field_dtype)

    def unfold_couplings(self, values: Tensor) -> Tensor:
        """``(G, n, n)`` back to the shape and dtype of ``model.couplings``."""
        return values.reshape(self._coupling_shape).to(self._coupling_dtype)


def _check_floating(name: str, values: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(values).__name__}.")
    if not values.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {values.dtype}.")


def _check_finite(name: str, values: Tensor) -> None:
    if math.isfinite(values.sum().item()):
        return  # a sum of finite numbers may overflow, but one with NaN or infinity in it is never finite
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        where = tuple(int(index) for index in (~finite).nonzero()[0])
        raise ValueError(f"{name} must be finite, got {values[where].item()} at index {where}.")


def _check_fields(fields: Tensor) -> None:
    _check_floating("fields", fields)
    if fields.dim() < 1 or fields.shape[-1] < 1:
        raise ValueError(f"fields must be (..., spins) with at least one spin, got {tuple(fields.shape)}.")
    _check_finite("fields", fields)


def _check_couplings(couplings: Tensor, fields: Tensor) -> None:
    _check_floating("couplings", couplings)
    n = fields.shape[-1]
    if couplings.shape[-2:] != (n, n):
        raise ValueError(
            f"couplings must be (..., {n}, {n}) for fields {tuple(fields.shape)}, got {tuple(couplings.shape)}."
        )
    if couplings.device != fields.device:
        raise ValueError(f"couplings must be on the device of fields, {fields.device}, got {couplings.device}.")
    _check_broadcast("couplings", couplings.shape[:-2], fields.shape[:-1])
    _check_finite("couplings", couplings)
    diagonal = couplings.diagonal(dim1=-2, dim2=-1)
    if bool((diagonal != 0).any()):
        worst = diagonal.abs().max().item()
        raise ValueError(f"couplings must have a zero diagonal, got an entry of size {worst:.3g}.")
    if not torch.equal(couplings, couplings.mT):
        gap = (couplings - couplings.mT).abs().max().item()
        if gap > 8 * torch.finfo(couplings.dtype).eps * couplings.abs().max().item():
            raise ValueError(f"couplings must be symmetric, got |J - J^T| up to {gap:.3g}. Use (J + J.mT) / 2.")


def _check_visible(visible: Tensor, fields: Tensor) -> None:
    if not isinstance(visible, Tensor) or visible.dtype != torch.bool:
        got = visible.dtype if isinstance(visible, Tensor) else type(visible).__name__
        raise TypeError(f"visible must be a boolean tensor (True = the spin takes part), got {got}.")
    if visible.device != fields.device:
        raise ValueError(f"visible must be on the device of fields, {fields.device}, got {visible.device}.")
    _check_broadcast("visible", visible.shape, fields.shape)


def broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Whether a tensor of ``shape`` broadcasts to exactly ``target``."""
    return len(shape) <= len(target) and all(
        size in (1, goal) for size, goal in zip(reversed(shape), reversed(target), strict=False)
    )


def _check_broadcast(name: str, shape: torch.Size, target: torch.Size) -> None:
    if not broadcasts(shape, target):
        raise ValueError(f"{name} must broadcast to {tuple(target)}, got {tuple(shape)}.")
