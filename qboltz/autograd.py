"""The one differentiable function: magnetizations of any solver, with gradients by linear response."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qboltz.ensemble import Solver, SpinEnsemble
from qboltz.errors import check_positive
from qboltz.ising import IsingModel
from qboltz.solvers.exact import ExactSolver


@torch.compiler.disable  # type: ignore[untyped-decorator]
def magnetization(
    fields: Tensor,
    couplings: Tensor,
    visible: Tensor | None = None,
    *,
    solver: Solver | None = None,
    beta: float = 1.0,
) -> Tensor:
    r"""``m_j = <s_j>`` under ``exp(-beta E)/Z`` of the Ising model, differentiable in fields and couplings.

    .. math::
        E(s) = -\sum_j h_j s_j - \sum_{j<k} J_{jk} s_j s_k, \qquad
        \frac{\partial m_j}{\partial h_k} = \beta\, \mathrm{Cov}(s_j, s_k), \qquad
        \frac{\partial m_j}{\partial J_{kl}} = \tfrac{\beta}2 \mathrm{Cov}(s_j, s_k s_l)

    where ``J_kl`` and ``J_lk`` are two entries of the symmetric matrix, each with half of the derivative.

    Args:
        fields: ``h``, shape ``(..., n)``.
        couplings: ``J``, shape ``(..., n, n)``, symmetric with zero diagonal; leading dimensions broadcast to those
            of ``fields``.
        visible: boolean, broadcastable to ``(..., n)``; spins that are not visible are removed from the model.
        solver: who computes it; ``ExactSolver()`` by default.
        beta: inverse temperature. A solver always works at 1: the model it is given has ``beta h`` and ``beta J``.

    Returns:
        ``(..., n)`` in the dtype and on the device of ``fields``; 0 where not visible.

    Raises:
        TypeError, ValueError: see :class:`qboltz.IsingModel`.
        RuntimeError: double backward, or ``torch.func.vmap``: put batch dimensions into ``fields`` instead. Under
            ``torch.compile`` the call runs uncompiled (a graph break).

    Source: arXiv:2606.12478; the derivatives are those of any exponential family.
    """
    chosen = ExactSolver() if solver is None else solver
    if not isinstance(chosen, Solver):
        raise TypeError(f"solver must have a method solve(model), got {type(chosen).__name__}.")
    result, _ = _Magnetization.apply(  # type: ignore[no-untyped-call]
        *at_temperature(fields, couplings, beta), visible, chosen
    )
    return result.to(fields.dtype)  # type: ignore[no-any-return]


def at_temperature(fields: Tensor, couplings: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """``beta h`` and ``beta J``, the model at inverse temperature 1 that stands for the given one at ``beta``.

    Scaled in at least float32, so that half precision loses nothing.

    Raises:
        TypeError, ValueError: ``beta`` is not a positive finite number, or an argument is no tensor.
    """
    beta = check_positive("beta", beta)
    if beta == 1.0:
        return fields, couplings
    for name, tensor in (("fields", fields), ("couplings", couplings)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}.")
    wide = torch.promote_types(torch.promote_types(fields.dtype, couplings.dtype), torch.float32)
    return fields.to(wide) * beta, couplings.to(wide) * beta


class _Magnetization(torch.autograd.Function):
    """The solver is asked once; its ensemble, not the solver, gives the gradient."""

    @staticmethod
    def forward(
        fields: Tensor, couplings: Tensor, visible: Tensor | None, solver: Solver
    ) -> tuple[Tensor, SpinEnsemble]:
        model = IsingModel(fields, couplings, visible)
        with torch.autocast(fields.device.type, enabled=False):
            ensemble = solver.solve(model)
            return ensemble.magnetization().clamp(-1, 1), ensemble  # rounding may leave it just outside

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, SpinEnsemble]) -> None:
        # Saved only for their version counters: a change in place before backward is then an error, not a wrong result.
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.ensemble = output[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor, Tensor, None, None]:
        fields, couplings = ctx.saved_tensors
        with torch.autocast(fields.device.type, enabled=False), torch.no_grad():
            grad_fields, grad_couplings = ctx.ensemble.pullback(grad.detach())
        if torch.is_grad_enabled():
            # Someone asked for create_graph: without this a second derivative would silently be taken as zero.
            inputs = grad, fields, couplings
            grad_fields, grad_couplings = _OnceOnly.apply(grad_fields, grad_couplings, *inputs)  # type: ignore[no-untyped-call]
        return grad_fields, grad_couplings, None, None

    @staticmethod
    def vmap(*_: object) -> None:
        raise RuntimeError(
            "qboltz.magnetization does not run under torch.func.vmap: a solver treats the whole batch in one call. "
            "Give fields (..., n) and couplings (..., n, n) leading batch dimensions instead; they broadcast."
        )


class _OnceOnly(torch.autograd.Function):
    """Hands gradients on and refuses to be differentiated."""

    @staticmethod
    def forward(grad_fields: Tensor, grad_couplings: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return grad_fields.clone(), grad_couplings.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            "qboltz.magnetization has no second derivative: call backward() or autograd.grad() without create_graph, "
            "and leave the magnetizations out of gradient penalties."
        )
