"""Rows that see equally many spins, as models of these spins alone: a way of removing masked spins exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from qboltz.ensemble import SpinEnsemble
from qboltz.ising import Groups, IsingModel


@dataclass(frozen=True, eq=False)
class VisiblePart:
    """The rows of a batch that see ``k`` spins, as models of these spins alone.

    Attributes:
        groups: the batch.
        rows: ``(N,)``, row ``g R + r`` of the batch; rows of one owner are neighbors.
        owner: ``(N,)`` ascending; rows with one group and one set of visible spins have one owner.
        spins: ``(U, k)``, the visible spins of each owner.
        group: ``(U,)``, the group of each owner.
        everything: all rows in order with all spins: nothing has to be picked.
    """

    groups: Groups
    rows: Tensor
    owner: Tensor
    spins: Tensor
    group: Tensor
    everything: bool = False

    @property
    def num_spins(self) -> int:
        """``k``."""
        return self.spins.shape[1]

    @cached_property
    def fields(self) -> Tensor:
        """``(N, k)``."""
        return self.take(self.groups.fields)

    @cached_property
    def couplings(self) -> Tensor:
        """``(U, k, k)``."""
        return self.groups.couplings if self.everything else self.groups.couplings[self._pairs]

    @cached_property
    def model(self) -> IsingModel:
        """The restricted models: ``U`` groups if all of them are equally large, else ``N`` groups of one row."""
        owners, k = self.spins.shape
        counts = torch.bincount(self.owner, minlength=owners)
        if bool((counts == counts[0]).all()):
            return IsingModel(self.fields.view(owners, -1, k), self.couplings.unsqueeze(1))
        return IsingModel(self.fields, self.couplings[self.owner])

    def take(self, values: Tensor) -> Tensor:
        """``(G, R, n)`` to ``(N, k)``."""
        values = values.flatten(0, 1)
        return values if self.everything else values[self.rows.unsqueeze(-1), self.spins[self.owner]]

    def put(self, total: Tensor, values: Tensor) -> None:
        """Write ``(N, k)`` into a contiguous ``(G, R, n)``."""
        total.view(-1, total.shape[-1])[self.rows.unsqueeze(-1), self.spins[self.owner]] = values

    def put_samples(self, total: Tensor, values: Tensor, piece: slice) -> None:
        """Write the samples ``(N', M, k)`` of some rows into ``(G R, M, n)``."""
        if self.everything:
            total[piece] = values
            return
        where = self.spins[self.owner[piece]].unsqueeze(1).expand_as(values)
        total[self.rows[piece]] = total[self.rows[piece]].scatter_(-1, where, values)

    def add_couplings(self, total: Tensor, values: Tensor) -> None:
        """Add ``(U, k, k)`` to ``(G, n, n)``."""
        total.index_put_(self._pairs, values, accumulate=True)

    @property
    def _pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.group[:, None, None], self.spins[:, :, None], self.spins[:, None, :]


def visible_parts(groups: Groups) -> list[VisiblePart]:
    """A batch by number of visible spins, from few to many; rows that see nothing are in no part."""
    num_groups, num_rows, n = groups.fields.shape
    device = groups.fields.device
    if num_groups * num_rows == 0:
        return []
    group_of_row = torch.arange(num_groups, device=device).repeat_interleave(num_rows)
    every_spin = torch.arange(n, device=device)
    if groups.visible is None:
        rows = torch.arange(num_groups * num_rows, device=device)
        spins = every_spin.expand(num_groups, n)
        return [VisiblePart(groups, rows, group_of_row, spins, spins.new_tensor(range(num_groups)), everything=True)]
    visible = groups.visible.flatten(0, 1)
    # Distinct (number of visible spins, group, visible spins), in this order; the mask as words of 60 bits.
    words = [(visible[:, i : i + 60].long() << every_spin[:60][: n - i]).sum(-1) for i in range(0, n, 60)]
    keys = torch.stack([visible.sum(-1), group_of_row, *words], -1)
    distinct, member = torch.unique(keys, dim=0, return_inverse=True)
    order = torch.argsort(member, stable=True)
    first_row = order[torch.searchsorted(member[order], torch.arange(len(distinct), device=device))]
    parts = []
    for count in torch.unique(distinct[:, 0]).tolist():
        if count == 0:
            continue
        owners = (distinct[:, 0] == count).nonzero().squeeze(-1)
        inside = order[(distinct[member[order], 0] == count)]
        spins = visible[first_row[owners]].nonzero()[:, 1].view(len(owners), count)
        parts.append(VisiblePart(groups, inside, member[inside] - owners[0], spins, distinct[owners, 1]))
    return parts


class VisibleEnsemble(SpinEnsemble):
    """The ensembles of the parts of a batch, put together; a row that sees nothing has magnetization 0."""

    def __init__(self, model: IsingModel, parts: Sequence[VisiblePart], ensembles: Sequence[SpinEnsemble]) -> None:
        self.model = model
        self.parts = parts
        self.ensembles = ensembles

    def magnetization(self) -> Tensor:
        groups = self.model.groups
        total = groups.fields.new_zeros(groups.fields.shape)
        for part, ensemble in zip(self.parts, self.ensembles, strict=True):
            part.put(total, ensemble.magnetization().view(part.fields.shape))
        return groups.unfold(total)

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        groups = self.model.groups
        folded = groups.fold(grad)
        grad_fields = groups.fields.new_zeros(groups.fields.shape)
        grad_couplings = torch.zeros_like(groups.couplings)
        for part, ensemble in zip(self.parts, self.ensembles, strict=True):
            upstream = part.take(folded).view(ensemble.model.fields.shape)
            fields, couplings = ensemble.pullback(upstream)
            part.put(grad_fields, fields.view(part.fields.shape))
            owners, k = part.spins.shape
            if couplings.dim() == 4:  # one matrix per owner
                part.add_couplings(grad_couplings, couplings.squeeze(1))
            else:
                summed = couplings.new_zeros(owners, k, k).index_add_(0, part.owner, couplings)
                part.add_couplings(grad_couplings, summed)
        return groups.unfold(grad_fields), groups.unfold_couplings(grad_couplings)
