"""Mean-field theory as a solver: magnetizations from self-consistency, without samples and without enumeration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from qboltz.ensemble import SpinEnsemble
from qboltz.errors import ConvergenceError, unknown_name
from qboltz.ising import IsingModel
from qboltz.solvers.mean_field_equation import METHODS, MeanFieldEquation, Method

#: The update of a row that turns back on itself is halved, down to this share, and recovers by this factor.
SMALLEST_STEP = 2.0**-10
RECOVERY = 1.1
#: Damped updates before Newton's method takes over the rows whose changes are small by then, but not small enough.
PLAIN_UPDATES = 20
NEWTON_CHANGE = 0.05


@dataclass(frozen=True)
class MeanFieldSolver:
    r"""Self-consistent magnetizations, each spin in the mean field of the others:

    .. math::
        \text{naive:}\quad & m = \tanh(h + J m) \\
        \text{TAP:}\quad & m_i = \tanh\big(h_i + \textstyle\sum_j J_{ij} m_j - m_i \sum_j J_{ij}^2 (1 - m_j^2)\big) \\
        \text{one step:}\quad & m = \tanh(h + J \tanh h)

    right to first (naive, one step) and second (TAP) order in ``J``, wrong where couplings are strong: of several
    solutions it is one, not their average. The iteration starts from ``m = tanh(h)`` and so takes the one on the
    side of the fields; with ``h = 0`` it stays at ``m = 0`` (the paramagnetic solution), even where that is not stable.
    Damped updates come first; rows that need many (near a critical point) go on with Newton steps where these lead to a
    stable solution.

    Gradients are those of the solution itself (linear response, by the implicit function theorem), not covariances of
    spins.

    Args:
        method: ``"naive"``, ``"tap"`` or ``"one_step"``.
        max_iterations: updates before the solver gives up.
        tolerance: largest ``|tanh(...) - m|`` of a solution; by default 16 times the machine epsilon (2e-6 in float32).
        damping: share of the old ``m`` that an update keeps, at least 0 and below 1. Rows that oscillate are damped
            further.

    Raises:
        ValueError: an argument is out of its range.

    Source: Thouless, Anderson and Palmer, Phil. Mag. 35 (1977) 593; Plefka, J. Phys. A 15 (1982) 1971; Kappen and
    Rodríguez, Neural Computation 10 (1998) 1137 for linear response.
    """

    method: Method = "naive"
    max_iterations: int = 1000
    tolerance: float | None = None
    damping: float = 0.3

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(unknown_name("method", self.method, METHODS))
        if isinstance(self.max_iterations, bool) or not isinstance(self.max_iterations, int) or self.max_iterations < 1:
            raise ValueError(f"max_iterations must be a positive integer, got {self.max_iterations!r}.")
        if self.tolerance is not None and not self.tolerance > 0:
            raise ValueError(f"tolerance must be positive or None, got {self.tolerance!r}.")
        if not 0 <= self.damping < 1:
            raise ValueError(f"damping must be at least 0 and below 1, got {self.damping!r}.")

    def solve(self, model: IsingModel) -> MeanFieldEnsemble:
        """The solution of every model of the batch.

        Raises:
            ConvergenceError: a row does not converge within ``max_iterations`` (TAP may have no stable solution where
                couplings are strong).
        """
        equation = MeanFieldEquation(model.groups, self.method)
        start = equation.uncoupled
        return MeanFieldEnsemble(
            model, equation, equation.update(start) if self.method == "one_step" else self._solution(equation, start)
        )

    def _solution(self, equation: MeanFieldEquation, m: Tensor) -> Tensor:
        tolerance = 16 * torch.finfo(m.dtype).eps if self.tolerance is None else self.tolerance
        largest_step = 1 - self.damping
        step = torch.full_like(m[..., :1], largest_step)
        change = equation.update(m) - m
        active = change.abs().amax(-1, keepdim=True) > tolerance  # (G, R, 1)
        for iteration in range(self.max_iterations):
            if not bool(active.any()):
                break
            move = step * change
            if iteration >= PLAIN_UPDATES:
                slow = active & (change.abs().amax(-1, keepdim=True) < NEWTON_CHANGE)
                equation.take_newton_steps(m, change, slow.squeeze(-1), move)
            # A row that has converged rests, so that its result does not depend on the others.
            m = torch.where(active, m + move, m)
            previous, change = change, equation.update(m) - m
            back = (previous * change).sum(-1, keepdim=True) < 0
            step = torch.where(back, step / 2, step * RECOVERY).clamp(SMALLEST_STEP, largest_step)
            active = active & (change.abs().amax(-1, keepdim=True) > tolerance)
        if bool(active.any()):
            raise ConvergenceError(self._advice(active, (change.abs() * active).max().item(), tolerance))
        return m

    def _advice(self, active: Tensor, residual: float, tolerance: float) -> str:
        others = "method='naive', " if self.method == "tap" else ""
        return (
            f"MeanFieldSolver(method={self.method!r}) must converge to {tolerance:.3g} within max_iterations="
            f"{self.max_iterations}, got a residual of {residual:.3g} and {int(active.sum())} of {active.numel()} rows "
            f"above it. Raise max_iterations or damping (now {self.damping:g}); if it still fails, the couplings are "
            f"too strong: use {others}GibbsSolver or ExactSolver instead."
        )


class MeanFieldEnsemble(SpinEnsemble):
    r"""Magnetizations of a mean-field theory and their exact derivatives.

    With :math:`D = \mathrm{diag}(1 - m^2)` and :math:`A = \partial a / \partial m` (``J`` in the naive theory) the
    response is :math:`\chi = \partial m / \partial h = (1 - D A)^{-1} D`.
    """

    def __init__(self, model: IsingModel, equation: MeanFieldEquation, mean: Tensor) -> None:
        self.model = model
        self.equation = equation
        self.mean = mean  # (G, R, n)

    def magnetization(self) -> Tensor:
        return self.model.groups.unfold(self.mean)

    def covariance(self) -> Tensor:
        """``dm_j / dh_k``, ``(..., n, n)``, the estimate of ``<s_j s_k> - <s_j><s_k>``; 0 where not visible.

        The response of the single step is not symmetric; this is then its symmetric part.

        Raises:
            ConvergenceError: the response diverges.
        """
        response = torch.diag_embed(self.equation.spread(self.mean))
        if self.equation.method == "one_step":
            inner = self.equation.spread(self.equation.uncoupled).unsqueeze(-2)
            response = response + response @ self.equation.couplings.unsqueeze(1) * inner
        else:
            response = self._response(response)
        return self.model.groups.unfold(0.5 * (response + response.mT))

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        groups, equation, m = self.model.groups, self.equation, self.mean
        spread = equation.spread(m)
        driven = spread * groups.fold(grad)
        if equation.method == "one_step":
            inner = equation.uncoupled
            grad_fields = driven + equation.spread(inner) * (driven @ equation.couplings)
            pairs = driven.mT @ inner
        else:
            grad_fields = self._response(driven.unsqueeze(-1)).squeeze(-1)
            pairs = grad_fields.mT @ m
            if equation.method == "tap":
                pairs = pairs - 2 * equation.couplings * ((grad_fields * m).mT @ spread)
        grad_couplings = 0.5 * (pairs + pairs.mT)
        grad_couplings.diagonal(dim1=-2, dim2=-1).zero_()
        return groups.unfold(grad_fields), groups.unfold_couplings(grad_couplings)

    def _response(self, driven: Tensor) -> Tensor:
        response, singular = self.equation.response(self.mean, driven)
        if bool(singular.any()):
            raise ConvergenceError(
                f"MeanFieldSolver(method={self.equation.method!r}) must have a finite response, got an infinite one "
                f"for {int(singular.sum())} of {singular.numel()} rows, which stand at a critical point of the theory. "
                "Use GibbsSolver or ExactSolver instead."
            )
        return response
