"""Exact inference by enumeration: the reference of every other solver."""

from __future__ import annotations

from dataclasses import dataclass

from qboltz.errors import TooManySpinsError
from qboltz.ising import IsingModel
from qboltz.solvers.buckets import bucketed
from qboltz.solvers.factorized import FactorizedEnsemble


@dataclass(frozen=True)
class ExactSolver:
    r"""Sums over all :math:`2^n` configurations, as matrix products between tables of half of the spins.

    A row costs the configurations of the spins it sees (rows that see few are treated apart); models without
    couplings are solved in closed form for any number of spins.

    Args:
        max_spins: the most coupled spins that a row may see.

    Raises:
        ValueError: ``max_spins`` is not a positive integer.
    """

    max_spins: int = 24

    def __post_init__(self) -> None:
        if isinstance(self.max_spins, bool) or not isinstance(self.max_spins, int) or self.max_spins < 1:
            raise ValueError(f"max_spins must be a positive integer, got {self.max_spins!r}.")

    def solve(self, model: IsingModel) -> FactorizedEnsemble:
        """The exact ensemble of every model of the batch.

        Raises:
            TooManySpinsError: a model has more than ``max_spins`` coupled, visible spins.
        """
        groups = model.groups
        shape = (groups.num_groups, groups.num_rows, groups.num_spins)
        buckets = list(bucketed(groups.visible, shape, self.max_spins))
        for bucket in buckets:
            couplings = bucket.take_couplings(groups.couplings)
            if couplings.shape[-1] > self.max_spins and bool(couplings.any()):
                raise TooManySpinsError(_advice(couplings.shape[-1], self.max_spins, couplings.element_size()))
        return FactorizedEnsemble(model, buckets)


def _advice(num_spins: int, max_spins: int, itemsize: int) -> str:
    table, half = _size(2**num_spins * itemsize), _size(4 * 2 ** ((num_spins + 1) // 2) * itemsize)
    return (
        f"The number of coupled spins that one query sees must be at most max_spins={max_spins} for ExactSolver, "
        f"got {num_spins}: the table of couplings would hold 2**{num_spins} weights ({table}, made in tiles) and every "
        f"query {half} of half tables. Use AnnealingSolver, GibbsSolver or MeanFieldSolver instead, or, if you can "
        f"wait, ExactSolver(max_spins={num_spins})."
    )


def _size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.3g} PiB"
