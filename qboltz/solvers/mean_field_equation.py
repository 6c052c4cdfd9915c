"""The self-consistency equations of mean-field theory and their derivatives, for a batch in canonical form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from qboltz.ising import Groups

Method = Literal["naive", "tap", "one_step"]
METHODS: tuple[Method, ...] = ("naive", "tap", "one_step")

#: Elements of the matrices of one piece of rows (64 MiB in float32).
CHUNK_ELEMENTS = 2**24


class MeanFieldEquation:
    r"""``m = tanh(a(m))`` over ``(G, R, n)``; spins that are not visible have ``m = 0``.

    .. math:: a_i = h_i + \sum_j J_{ij} m_j \;\Big[ - m_i \sum_j J_{ij}^2 (1 - m_j^2) \text{ for TAP} \Big], \qquad
        A_{ij} = \frac{\partial a_i}{\partial m_j} = A_{ji}

    With :math:`D = \mathrm{diag}(1 - m^2)` a solution is stable (a minimum of the variational free energy) where
    :math:`D^{-1} - A` is positive definite; all is formed from :math:`1 - D A`, which saturated spins do not disturb.
    """

    def __init__(self, groups: Groups, method: Method) -> None:
        self.method = method
        self.fields = groups.fields
        self.couplings = groups.couplings
        self._squares = groups.couplings.square()
        self._visible = None if groups.visible is None else groups.visible.to(groups.fields.dtype)
        self.uncoupled = self._seen(torch.tanh(groups.fields))

    def update(self, m: Tensor) -> Tensor:
        """``tanh(a(m))``, ``(G, R, n)``."""
        local = self.fields + m @ self.couplings
        if self.method == "tap":
            local = local - m * (self.spread(m) @ self._squares)
        return self._seen(torch.tanh(local))

    def spread(self, m: Tensor) -> Tensor:
        """``1 - m^2``, 0 where not visible; as a product it keeps its digits near saturation."""
        return self._seen((1 - m) * (1 + m))

    def pieces(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices ``(group, row)`` of the rows marked in ``(G, R)``, as many at once as memory allows."""
        at_once = max(1, CHUNK_ELEMENTS // self.fields.shape[-1] ** 2)
        group, row = rows.nonzero(as_tuple=True)
        yield from zip(group.split(at_once), row.split(at_once), strict=True)

    def response(self, m: Tensor, driven: Tensor) -> tuple[Tensor, Tensor]:
        """``(1 - D A)^-1 driven`` at a solution, ``(G, R, n, k)``, and which rows have none, ``(G, R)``."""
        spread = self.spread(m)
        result = torch.empty_like(driven)
        singular = torch.zeros(m.shape[:2], dtype=torch.bool, device=m.device)
        for where in self.pieces(~singular):
            loop = spread[where].unsqueeze(-1) * self._feedback(m[where], spread[where], self.couplings[where[0]])
            result[where], info = torch.linalg.solve_ex(self._identity() - loop, driven[where])
            singular[where] = info != 0
        return result, singular

    def take_newton_steps(self, m: Tensor, change: Tensor, rows: Tensor, move: Tensor) -> None:
        """Overwrite ``move`` with Newton's step ``(1 - D A)^-1 change`` in the ``rows (G, R)`` where it is safe.

        Newton's method finds any solution, unstable ones too. A row takes the step only where ``D^-1 - A`` is positive
        definite and the result is a magnetization.
        """
        spread, new_spread = self.spread(m), self.spread(m + change)
        for where in self.pieces(rows):
            feedback = self._feedback(m[where], spread[where], self.couplings[where[0]])
            d = new_spread[where].unsqueeze(-1)
            _, unstable = torch.linalg.cholesky_ex(self._identity() - d.sqrt() * feedback * d.sqrt().mT)
            step, singular = torch.linalg.solve_ex(self._identity() - d * feedback, change[where].unsqueeze(-1))
            step = step.squeeze(-1)
            safe = (unstable == 0) & (singular == 0) & ((m[where] + step).abs() <= 1).all(-1)
            move[where[0][safe], where[1][safe]] = step[safe]

    def _feedback(self, m: Tensor, spread: Tensor, couplings: Tensor) -> Tensor:
        """``A`` of some rows, ``(k, n, n)``."""
        if self.method == "naive":
            return couplings
        squares = couplings.square()
        own = (squares @ spread.unsqueeze(-1)).squeeze(-1)
        return couplings + 2 * squares * m.unsqueeze(-1) * m.unsqueeze(-2) - torch.diag_embed(own)

    def _identity(self) -> Tensor:
        return torch.eye(self.fields.shape[-1], dtype=self.fields.dtype, device=self.fields.device)

    def _seen(self, values: Tensor) -> Tensor:
        return values if self._visible is None else values * self._visible
