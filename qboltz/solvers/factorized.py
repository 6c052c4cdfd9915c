"""The exact ensemble: it stands for exp(-E)/Z to rounding, and knows Z."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from qboltz.ensemble import SpinEnsemble
from qboltz.enumeration import (
    CouplingTable,
    DirectFactors,
    Factors,
    FreeFactors,
    ProductFactors,
    StreamedFactors,
)
from qboltz.enumeration.tables import TILE_ELEMENTS
from qboltz.ising import IsingModel
from qboltz.solvers.buckets import EVERYTHING, Bucket, Index

#: Rows times configurations up to which everything is summed in one piece: the fixed cost of products would dominate.
DIRECT_TERMS = 2**17
#: Largest sum of |h| and |J| of a row in units of 1 / eps: the digits that rounding of its energies may cost.
MAX_ENERGY = 2.0**-15
#: Entries of the half tables of one piece, about a cache; and of all pieces that are kept for the backward pass.
PIECE_ELEMENTS = 2**18
KEPT_ELEMENTS = 2**25

#: Fields, couplings and hidden spins of a bucket.
Taken = tuple[Tensor, Tensor, Tensor | None]


class FactorizedEnsemble(SpinEnsemble):
    """Every model of a batch, summed exactly; made by :class:`qboltz.ExactSolver`.

    Args:
        model: the batch.
        buckets: which rows are enumerated together; every row that sees a spin is in one of them.
    """

    def __init__(self, model: IsingModel, buckets: Sequence[Bucket]) -> None:
        self.model = model
        self._budget = KEPT_ELEMENTS
        # In order: where a later piece overlaps an earlier one, the earlier one could not be trusted and says 0.
        self._pieces = [piece for bucket in buckets for piece in self._pieces_of(bucket)]

    def magnetization(self) -> Tensor:
        groups = self.model.groups
        if self._whole is not None:
            return groups.unfold(self._whole.mean.clone())
        total = torch.zeros_like(groups.fields)
        for bucket, factors in self._pieces:
            bucket.put(total, factors.mean)
        return groups.unfold(total)

    @property
    def _whole(self) -> Factors | None:
        """The factors that answer for every row alone, if there are such."""
        if len(self._pieces) == 1 and self._pieces[0][0].is_everything:
            return self._pieces[0][1]
        return None

    def log_partition(self) -> Tensor:
        """``log Z``, the batch shape of the model; 0 for a model without visible spins."""
        return self._per_model(lambda factors: factors.log_partition())

    def entropy(self) -> Tensor:
        """``-sum_s p(s) log p(s)`` in nats, the batch shape of the model."""
        return self._per_model(lambda factors: factors.entropy())

    def covariance(self) -> Tensor:
        """``<s_j s_k> - <s_j><s_k>``, ``(..., n, n)``; 0 in rows and columns of invisible spins."""
        groups = self.model.groups
        n = groups.num_spins
        total = groups.fields.new_zeros(groups.num_groups, groups.num_rows, n, n)
        for bucket, factors in self._pieces:
            bucket.put_covariance(total, factors.covariance())
        return groups.unfold(total)

    def second_moments(self) -> Tensor:
        """``<s_j s_k>``, ``(..., n, n)``, 1 on the diagonal; 0 in rows and columns of invisible spins."""
        mean = self.magnetization()
        return self.covariance() + mean.unsqueeze(-1) * mean.unsqueeze(-2)

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        groups = self.model.groups
        folded = groups.fold(grad.detach())
        if self._whole is not None:
            grad_fields, pairs = self._whole.pullback(folded)
            return groups.unfold(grad_fields), groups.unfold_couplings(pairs.mul_(0.5))
        grad_fields, pairs = torch.zeros_like(groups.fields), torch.zeros_like(groups.couplings)
        for bucket, factors in self._pieces:
            field_part, pair_part = factors.pullback(bucket.take(folded))
            bucket.put(grad_fields, field_part)
            bucket.add_couplings(pairs, pair_part)
        return groups.unfold(grad_fields), groups.unfold_couplings(pairs.mul_(0.5))

    def sample(self, shots: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent exact samples, ``(..., shots, n)`` int8 in {-1, +1}; invisible spins are reported as -1.

        The left half is drawn from its marginal, the right half given the left, each by inverse CDF in float64.

        Args:
            shots: samples per model.
            generator: source of randomness on the device of the model; torch's own by default.
        """
        if isinstance(shots, bool) or not isinstance(shots, int) or shots < 0:
            raise ValueError(f"shots must be a non-negative integer, got {shots!r}.")
        groups = self.model.groups
        shape = (groups.num_groups, groups.num_rows, groups.num_spins, shots)
        drawn = torch.full(shape, -1, dtype=torch.int8, device=groups.fields.device)
        for bucket, factors in self._pieces:
            bucket.put(drawn, factors.draw(shots, generator).mT)
        return groups.unfold(drawn.mT).to(torch.int8)

    def _per_model(self, question: Callable[[Factors], Tensor]) -> Tensor:
        groups = self.model.groups
        total = groups.fields.new_zeros(groups.num_groups, groups.num_rows)
        for bucket, factors in self._pieces:
            bucket.put(total, question(factors))
        return groups.unfold(total)

    def _pieces_of(self, bucket: Bucket) -> Iterator[tuple[Bucket, Factors]]:
        """Groups without any coupling in closed form, rows with huge energies in float64, the others as they are."""
        taken = fields, couplings, hidden = self._taken(bucket, self.model.dtype)
        size = torch.linalg.vector_norm(couplings, 1, (-2, -1)).mul_(0.5)  # (G,)
        sizes = size.tolist()
        if 0.0 in sizes:
            coupled = size > 0
            groups = (~coupled).nonzero().squeeze(-1)
            masked = None if hidden is None else hidden[groups]
            yield bucket.narrowed(groups), FreeFactors(fields[groups], couplings[groups], masked)
            if bool(coupled.any()):
                yield from self._pieces_of(bucket.narrowed(coupled.nonzero().squeeze(-1)))
            return
        shown = fields if hidden is None else fields.masked_fill(hidden, 0.0)
        limit = MAX_ENERGY / torch.finfo(fields.dtype).eps
        shown_size = shown.abs().sum(-1)
        if fields.dtype == torch.float64 or float(shown_size.max()) + max(sizes) < limit:
            yield from self._enumerate(bucket, 0, taken)
            return
        calm = shown_size + size[:, None] < limit
        for attempt, some in enumerate((calm, ~calm)):
            for groups_rows in _products(some):
                part = bucket.narrowed(*groups_rows)
                yield from self._enumerate(part, attempt, self._taken(part, self._dtype(attempt)))

    def _dtype(self, attempt: int) -> torch.dtype:
        return torch.float64 if attempt else self.model.dtype

    def _enumerate(self, bucket: Bucket, attempt: int, taken: Taken) -> Iterator[tuple[Bucket, Factors]]:
        """Few terms at once, many by matrix products; what is too extreme once more in float64, then in logarithms."""
        fields, couplings, hidden = taken
        groups, rows, n = fields.shape
        direct = groups * rows << n <= DIRECT_TERMS
        per_row = 2**n if direct else 2 ** (n // 2) + 2 ** (n - n // 2)
        most_rows = max(1, PIECE_ELEMENTS // per_row)
        group_step = max(1, min(most_rows // rows, TILE_ELEMENTS >> n))
        row_step = -(-rows // -(-rows // most_rows))
        for some in _steps(groups, group_step):
            shared = couplings[some]
            table = None if direct else CouplingTable(shared, 1 if attempt else 2, self._afford(len(shared) << n))
            made = []
            for part in _steps(rows, row_step):
                own = fields[some, part]
                masked = None if hidden is None else hidden[some, part]
                factors: Factors
                if table is None:
                    factors = DirectFactors(own, shared, masked, self._afford(own[..., 0].numel() * per_row))
                elif attempt < 2:
                    factors = ProductFactors(table, own, masked, self._afford(4 * own[..., 0].numel() * per_row))
                else:
                    factors = StreamedFactors(table, own, masked)
                made.append(factors)
                yield bucket.narrowed(some, part), factors
            if all(factors.complete for factors in made):
                continue
            for failed in _products(~torch.cat([factors.reliable for factors in made], 1)):
                again = bucket.narrowed(some).narrowed(*failed)
                yield from self._enumerate(again, attempt + 1, self._taken(again, torch.float64))

    def _afford(self, elements: int) -> bool:
        """Whether that many entries may still be kept for the backward pass."""
        enough = elements <= self._budget
        self._budget -= elements if enough else 0
        return enough

    def _taken(self, bucket: Bucket, dtype: torch.dtype) -> Taken:
        """Fields, couplings and hidden spins of a bucket."""
        groups = self.model.groups
        hidden = None if groups.visible is None else ~bucket.take(groups.visible)
        if hidden is not None and not bool(hidden.any()):
            hidden = None
        fields = bucket.take(groups.fields).to(dtype)
        return fields, bucket.take_couplings(groups.couplings).to(dtype), hidden


def _steps(size: int, step: int) -> Iterator[slice]:
    """Slices of at most ``step`` that cover ``range(size)``."""
    if step >= size:
        yield EVERYTHING
        return
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def _products(failed: Tensor) -> Iterator[tuple[Index, Index]]:
    """A boolean table ``(g, r)`` as products of groups and rows."""
    if not bool(failed.any()):
        return
    if failed.shape[1] == 1 or bool((failed == failed[:1]).all()):
        yield failed.any(1).nonzero().squeeze(-1), failed.any(0).nonzero().squeeze(-1)
        return
    for group, rows in enumerate(failed):
        if bool(rows.any()):
            yield slice(group, group + 1), rows.nonzero().squeeze(-1)
