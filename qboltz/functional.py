"""Boltzmann attention as a function, with the conventions of ``scaled_dot_product_attention``."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from qboltz.autograd import at_temperature, magnetization
from qboltz.ensemble import Solver
from qboltz.errors import check_positive, unknown_name
from qboltz.ising import broadcasts

Variant = Literal["softmax", "h+J", "h-only", "J-only"]
VARIANTS: tuple[Variant, ...] = ("softmax", "h+J", "h-only", "J-only")

#: A float mask at or below this removes the key, like ``-inf``: masks are often written with ``-1e9`` or the lowest
#: number of the dtype. In softmax that is the same; a spin that was only pushed down would still pull its neighbors.
REMOVED_BELOW = -1e4
#: Fields below which a spin that nobody supports counts as firmly ignored: there ``1 + m`` is under 0.005.
FIRMLY_IGNORED = -3.0


def boltzmann_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    couplings: Tensor | None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    solver: Solver | None = None,
    variant: Variant = "h+J",
    beta: float = 1.0,
) -> Tensor:
    r"""Attention whose weights are magnetizations of one Ising model per query.

    .. math::
        h_{ij} = q_i \cdot k_j / \sqrt{d}, \qquad m_{ij} = \langle s_j \rangle_{\beta h_i, \beta J}, \qquad
        \alpha_{ij} = (m_{ij} + 1) / 2, \qquad o_i = \sum_j \frac{\alpha_{ij}}{\sum_k \alpha_{ik}} v_j

    Args:
        query: ``(..., L, d)``.
        key: ``(..., S, d)``.
        value: ``(..., S, d_v)``.
        couplings: ``J`` between key positions, ``(..., S, S)``, symmetric with zero diagonal, shared by all queries;
            leading dimensions broadcast to those of the scores (for heads: ``(H, S, S)``). ``None`` is ``J = 0``.
        attn_mask: broadcastable to ``(..., L, S)``: boolean (True = attend), or floating point, added to the scores
            (``-1e4`` and below, ``-inf`` included, removes the key).
        is_causal: query ``i`` sees keys ``0..i`` (upper-left corner); combines with ``attn_mask``.
        scale: factor of the scores, ``1 / sqrt(d)`` by default.
        solver: who computes the magnetizations, ``ExactSolver()`` by default.
        variant: ``"h+J"``; ``"h-only"`` (``J = 0``: normalized sigmoid attention, ``alpha = sigmoid(2 h)``);
            ``"J-only"`` (``h = 0``: flipping all spins changes nothing, so ``m = 0`` and all visible keys weigh the
            same, whatever ``J`` is; a control of the paper); ``"softmax"``.
        beta: inverse temperature of the models, ``exp(-beta E)/Z``; of softmax, of its scores.

    Returns:
        ``(..., L, d_v)`` in the dtype of ``query``. A query that sees no key, or whose every spin is ``-1`` to
        machine precision, attends to nothing: zeros.

    Raises:
        TypeError, ValueError: a tensor, mask or name is wrong; the message names it, the rule and the value.

    Source: arXiv:2606.12478.
    """
    _check_projections(query, key, value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        scores = query.to(wide) @ key.to(wide).mT * factor  # (..., L, S)
        scores, visible = apply_mask(scores, attn_mask, is_causal)
        weights = attention_weights(scores, couplings, visible, solver=solver, variant=variant, beta=beta)
        return (weights @ value.to(wide)).to(query.dtype)


def attention_weights(
    scores: Tensor,
    couplings: Tensor | None,
    visible: Tensor | None = None,
    *,
    solver: Solver | None = None,
    variant: Variant = "h+J",
    beta: float = 1.0,
) -> Tensor:
    """The weights of :func:`boltzmann_attention` from scores ``(..., L, S)``; each row sums to 1, or to 0 for nothing.

    ``couplings`` is ``(..., S, S)`` or ``None``, ``visible`` boolean and broadcastable to the scores (True = attend).
    """
    if variant not in VARIANTS:
        raise ValueError(unknown_name("variant", variant, VARIANTS))
    if variant == "softmax":
        return _softmax(scores * check_positive("beta", beta), visible)
    # J-only multiplies by zero, rather than dropping the scores, so that every parameter stays in the graph (DDP).
    fields = scores * 0 if variant == "J-only" else scores
    fields, shared = at_temperature(fields, _shared(couplings, scores, variant), beta)
    if _all_ignored(fields.detach(), shared.detach(), visible):
        fields = fields.double()
    alpha = (magnetization(fields, shared, visible, solver=solver) + 1) / 2
    if visible is not None:
        alpha = alpha * visible
    total = alpha.sum(-1, keepdim=True)
    attends = total > torch.finfo(alpha.dtype).eps
    normalized: Tensor = torch.where(attends, alpha, 0) / torch.where(attends, total, 1)
    return normalized.to(scores.dtype)


def _all_ignored(fields: Tensor, couplings: Tensor, visible: Tensor | None) -> bool:
    """Whether some query ignores all its keys so firmly that ``1 + m`` would lose its digits in single precision.

    Judged by the fields that are felt while all other spins are -1. Such a batch is solved in float64, where ``1 + m``
    keeps six digits down to fields of -12.
    """
    if fields.dtype == torch.float64 or not fields.numel():
        return False
    felt = fields - couplings.sum(-1)
    if visible is not None:
        felt = felt.masked_fill(~visible, -math.inf)
    strongest = felt.amax(-1)
    return bool(((strongest < FIRMLY_IGNORED) & (strongest > -math.inf)).any())


def apply_mask(
    scores: Tensor, attn_mask: Tensor | None, is_causal: bool, *, name: str = "attn_mask"
) -> tuple[Tensor, Tensor | None]:
    """Scores with a float mask added, and which keys are visible; ``None`` when all are."""
    visible = None
    if attn_mask is not None:
        _check_mask(attn_mask, scores, name)
        if attn_mask.dtype == torch.bool:
            visible = attn_mask
        else:
            visible = attn_mask > REMOVED_BELOW
            scores = scores + torch.where(visible, attn_mask, 0).to(scores.dtype)
    if is_causal:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        visible = causal if visible is None else visible & causal
    return scores, visible


def _shared(couplings: Tensor | None, scores: Tensor, variant: Variant) -> Tensor:
    keys = scores.shape[-1]
    if variant == "h-only" or couplings is None:
        return scores.new_zeros(keys, keys)
    if not isinstance(couplings, Tensor):
        raise TypeError(f"couplings must be a torch.Tensor or None, got {type(couplings).__name__}.")
    if couplings.shape[-2:] != (keys, keys):
        raise ValueError(f"couplings must be (..., {keys}, {keys}) for {keys} keys, got {tuple(couplings.shape)}.")
    lead = scores.shape[:-2]
    if not broadcasts(couplings.shape[:-2], lead):
        raise ValueError(
            f"couplings must broadcast to {(*lead, keys, keys)}, one matrix for all queries, "
            f"got {tuple(couplings.shape)}."
        )
    return couplings.unsqueeze(-3)  # (..., 1, S, S): the same for every query


def _softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    if visible is None:
        return torch.softmax(scores, -1)
    attends = visible.any(-1, keepdim=True)
    lowest = torch.where(attends & ~visible, -math.inf, 0.0).to(scores.dtype)
    return torch.softmax(torch.where(visible, scores, 0) + lowest, -1) * visible


def _check_projections(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(f"{name} must be a floating point tensor, got {got}.")
        if tensor.dim() < 2:
            raise ValueError(f"{name} must be (..., length, features), got {tuple(tensor.shape)}.")
        if tensor.dtype != query.dtype:
            raise TypeError(f"{name} must have the dtype of query, {query.dtype}, got {tensor.dtype}.")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"key must be (..., S, {query.shape[-1]}) like query, got {tuple(key.shape)}.")
    lead = [tuple(tensor.shape[:-2]) for tensor in (query, key, value)]
    try:
        torch.broadcast_shapes(*lead)
    except RuntimeError:
        raise ValueError(
            f"query, key and value must have batch dimensions that broadcast, got {lead[0]}, {lead[1]} and {lead[2]}."
        ) from None
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"value must be (..., {key.shape[-2]}, d_v) like key, got {tuple(value.shape)}.")


def _check_mask(attn_mask: Tensor, scores: Tensor, name: str) -> None:
    if not isinstance(attn_mask, Tensor) or not (attn_mask.dtype == torch.bool or attn_mask.is_floating_point()):
        got = attn_mask.dtype if isinstance(attn_mask, Tensor) else type(attn_mask).__name__
        raise TypeError(f"{name} must be a boolean or floating point tensor, got {got}.")
    if not broadcasts(attn_mask.shape, scores.shape):
        raise ValueError(f"{name} must broadcast to {tuple(scores.shape)}, got {tuple(attn_mask.shape)}.")
    if attn_mask.is_floating_point() and bool((attn_mask.isnan() | (attn_mask == math.inf)).any()):
        raise ValueError(f"{name} must be finite or -inf (which removes the key), got NaN or +inf.")
