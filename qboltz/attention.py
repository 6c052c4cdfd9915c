"""The layer: a drop-in for ``torch.nn.MultiheadAttention`` whose weights are magnetizations."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qboltz.ensemble import Solver
from qboltz.errors import check_positive, unknown_name
from qboltz.functional import VARIANTS, Variant, apply_mask, attention_weights
from qboltz.solvers import make_solver
from qboltz.spins import num_pairs, pair_indices

#: Coupling of neighboring keys under ``coupling_init="neighbor"``.
NEIGHBOR_COUPLING = 1.5
#: Largest field at the start under ``qk_norm``: spins neither frozen nor free.
INITIAL_SCALE = 3.0


class BoltzmannAttention(nn.Module):
    r"""Multi-head attention with one Ising model per query and head, couplings learned per head.

    .. math::
        E_i(s) = -\sum_j h_{ij} s_j - \sum_{j<k} J_{jk} s_j s_k, \qquad h_{ij} = q_i \cdot k_j / \sqrt{d_k}, \qquad
        w_{ij} \propto (\langle s_j \rangle_i + 1) / 2

    ``J`` is indexed by key position and shared by all queries and batch items.

    Args:
        embed_dim: features of query, key, value and output; divisible by ``num_heads``.
        num_heads: ``H``; each head has its own ``J``.
        max_len: largest number of keys; shorter sequences use the leading block of ``J``.
        variant: ``"h+J"``, ``"h-only"``, ``"J-only"`` or ``"softmax"``.
        solver: a solver or its name (:func:`qboltz.make_solver`); can be replaced at any time through ``.solver``.
        coupling_init: ``"zeros"``, ``"neighbor"`` (1.5 between neighbors, where recall starts) or a tensor
            ``(max_len, max_len)`` or ``(num_heads, max_len, max_len)``.
        dropout: probability, applied to the weights while training.
        bias: biases in the projections.
        batch_first: inputs are ``(B, T, E)``, else ``(T, B, E)``; unbatched ``(T, E)`` works in both cases.
        qk_norm: normalize ``q`` and ``k`` to unit length and scale their product by a learned ``exp(logit_scale)`` per
            head. This bounds the fields, which otherwise can run away until all spins are saturated.
        beta: inverse temperature: the weights come from ``exp(-beta E)/Z``. An attribute, free to change at any time.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it, the rule and the value.

    Source: arXiv:2606.12478.
    """

    #: Read by torch's Transformer layers before they try a fused softmax kernel: this layer has none.
    _qkv_same_embed_dim = False

    in_proj_bias: nn.Parameter | None
    coupling_weights: nn.Parameter | None
    logit_scale: nn.Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 1,
        max_len: int = 16,
        *,
        variant: Variant = "h+J",
        solver: str | Solver = "exact",
        coupling_init: Literal["zeros", "neighbor"] | Tensor = "zeros",
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = True,
        qk_norm: bool = False,
        beta: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, number in (("embed_dim", embed_dim), ("num_heads", num_heads), ("max_len", max_len)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be a positive integer, got {number!r}.")
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}.")
        if variant not in VARIANTS:
            raise ValueError(unknown_name("variant", variant, VARIANTS))
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}.")
        self.embed_dim, self.num_heads, self.max_len = embed_dim, num_heads, max_len
        self.head_dim = embed_dim // num_heads
        self.variant, self.dropout, self.batch_first = variant, dropout, batch_first
        self.solver = solver
        self.beta = check_positive("beta", beta)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.in_proj_weight = empty(3 * embed_dim, embed_dim)
        self.in_proj_bias = empty(3 * embed_dim) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.logit_scale = empty(num_heads) if qk_norm else None
        start = _initial_couplings(coupling_init, num_heads, max_len).to(self.in_proj_weight)
        self.coupling_weights = nn.Parameter(start) if variant in ("h+J", "J-only") else None
        self._reset_projections()

    def _reset_projections(self) -> None:
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            nn.init.zeros_(self.out_proj.bias)
        if self.logit_scale is not None:
            nn.init.constant_(self.logit_scale, math.log(INITIAL_SCALE))

    @property
    def solver(self) -> Solver:
        """Who computes the magnetizations; assign a solver or a name to change it, also after training."""
        return self._solver

    @solver.setter
    def solver(self, solver: str | Solver) -> None:
        chosen = make_solver(solver) if isinstance(solver, str) else solver
        if not isinstance(chosen, Solver):
            raise TypeError(f"solver must be a name or have a method solve(model), got {type(chosen).__name__}.")
        self._solver = chosen

    @property
    def couplings(self) -> Tensor:
        """``J``, ``(num_heads, max_len, max_len)``, symmetric with zero diagonal; zeros in a variant without ``J``."""
        dense = self.in_proj_weight.new_zeros(self.num_heads, self.max_len, self.max_len)
        if self.coupling_weights is None:
            return dense
        first, second = map(torch.from_numpy, pair_indices(self.max_len))
        dense = dense.to(self.coupling_weights.dtype)
        dense[:, first, second] = self.coupling_weights
        return dense + dense.mT

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; arguments and masks mean what they mean in ``torch.nn.MultiheadAttention`` (True = ignore).

        Args:
            query: ``(B, L, E)``.
            key: ``(B, S, E)``, ``S <= max_len``.
            value: ``(B, S, E)``.
            key_padding_mask: ``(B, S)``, or ``(S,)`` for unbatched input; boolean (True = ignore this key) or float,
                added to the scores.
            need_weights: return the weights too.
            attn_mask: ``(L, S)``, ``(B * num_heads, L, S)``, or four dimensions that broadcast to
                ``(B, num_heads, L, S)``.
            average_attn_weights: average the returned weights over heads.
            is_causal: query ``i`` sees keys ``0..i``, with or without an ``attn_mask``.

        Returns:
            The output ``(B, L, E)``, and the weights before dropout: ``(B, L, S)`` averaged, ``(B, H, L, S)`` per
            head, or ``None``. A query that sees no key attends to nothing: its weights are zeros.
        """
        query, key, value, batched = self._batch_first(query, key, value)
        if not batched and isinstance(key_padding_mask, Tensor) and key_padding_mask.dim() == 1:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        q, k, v = self._project(query, key, value)  # (B, H, L, D), (B, H, S, D), (B, H, S, D)
        wide = torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            scores = self._scores(q.to(wide), k.to(wide))  # (B, H, L, S)
            scores, visible = self._masked(scores, key_padding_mask, attn_mask, is_causal)
            keys = scores.shape[-1]
            couplings = self.couplings[:, :keys, :keys] if self.coupling_weights is not None else None
            weights = attention_weights(
                scores, couplings, visible, solver=self._solver, variant=self.variant, beta=self.beta
            )  # (B, H, L, S)
        kept = F.dropout(weights, self.dropout, self.training).to(v.dtype)
        out = self.out_proj((kept @ v).transpose(1, 2).flatten(2))  # (B, L, E)
        shown = None
        if need_weights:
            shown = (weights.mean(1) if average_attn_weights else weights).to(out.dtype)
        if not batched:
            return out.squeeze(0), None if shown is None else shown.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), shown

    def _batch_first(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
                got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise TypeError(f"{name} must be a floating point tensor, got {got}.")
            if tensor.dim() not in (2, 3) or tensor.dim() != query.dim() or tensor.shape[-1] != self.embed_dim:
                form = (
                    f"(batch, length, {self.embed_dim})" if self.batch_first else f"(length, batch, {self.embed_dim})"
                )
                raise ValueError(f"{name} must be {form}, like query, got {tuple(tensor.shape)}.")
        batched = query.dim() == 3
        if not batched:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        if key.shape[:2] != value.shape[:2] or key.shape[0] != query.shape[0]:
            raise ValueError(
                "query, key and value must agree in batch size, key and value in length; got "
                f"(B, L) = {tuple(query.shape[:2])}, {tuple(key.shape[:2])} and {tuple(value.shape[:2])}."
            )
        if key.shape[1] > self.max_len:
            raise ValueError(f"key must have at most max_len = {self.max_len} positions, got {key.shape[1]}.")
        return query, key, value, batched

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights = self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        q, k, v = (x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in projected)
        return q, k, v

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        if self.logit_scale is None:
            return q @ k.mT / math.sqrt(self.head_dim)
        scale = self.logit_scale.to(q.dtype).exp()[:, None, None]  # (H, 1, 1)
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * scale

    def _masked(
        self, scores: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, is_causal: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Scores with float masks added, and the visible keys; MultiheadAttention's True (ignore) turned around."""
        batch, heads, length, keys = scores.shape
        visible = None
        if key_padding_mask is not None:
            padding = _attend(key_padding_mask, "key_padding_mask")
            if padding.shape != (batch, keys):
                raise ValueError(f"key_padding_mask must be ({batch}, {keys}), got {tuple(padding.shape)}.")
            scores, visible = apply_mask(scores, padding[:, None, None, :], False, name="key_padding_mask")
        if attn_mask is not None:
            allowed_mask = _attend(attn_mask, "attn_mask")
            if allowed_mask.dim() == 3:
                if allowed_mask.shape[0] != batch * heads:
                    raise ValueError(
                        f"attn_mask must be ({length}, {keys}), ({batch * heads}, {length}, {keys}) with one matrix "
                        f"per batch item and head, or four-dimensional, got {tuple(allowed_mask.shape)}."
                    )
                allowed_mask = allowed_mask.unflatten(0, (batch, heads))
            scores, allowed = apply_mask(scores, allowed_mask, False)
            visible = allowed if visible is None or allowed is None else visible & allowed
        scores, causal = apply_mask(scores, None, is_causal)
        if causal is not None:
            visible = causal if visible is None else visible & causal
        return scores, visible

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, max_len={self.max_len}, "
            f"variant={self.variant!r}, beta={self.beta}, solver={self._solver!r}"
        )


def _attend(mask: Tensor, name: str) -> Tensor:
    """MultiheadAttention's boolean "True = ignore" as "True = attend"; a float mask is left as it is."""
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{name} must be a boolean or floating point tensor, got {got}.")
    return ~mask if mask.dtype == torch.bool else mask


def _initial_couplings(start: str | Tensor, num_heads: int, max_len: int) -> Tensor:
    """The pairs ``k < l`` of each head, ``(H, max_len (max_len - 1) / 2)``."""
    if isinstance(start, Tensor):
        return _pairs_of(start, num_heads, max_len)
    if not isinstance(start, str):
        raise TypeError(f"coupling_init must be 'zeros', 'neighbor' or a torch.Tensor, got {type(start).__name__}.")
    if start not in ("zeros", "neighbor"):
        raise ValueError(unknown_name("coupling_init", start, ["zeros", "neighbor"]) + " A tensor works too.")
    first, second = pair_indices(max_len)
    pairs = torch.zeros(num_heads, num_pairs(max_len))
    if start == "neighbor":
        pairs[:, torch.from_numpy(second - first == 1)] = NEIGHBOR_COUPLING
    return pairs


def _pairs_of(matrix: Tensor, num_heads: int, max_len: int) -> Tensor:
    allowed = [(max_len, max_len), (num_heads, max_len, max_len)]
    if tuple(matrix.shape) not in allowed:
        raise ValueError(f"coupling_init must be {allowed[0]} or {allowed[1]}, got {tuple(matrix.shape)}.")
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError("coupling_init must be finite, got NaN or an infinity.")
    if not torch.equal(matrix, matrix.mT) or bool((matrix.diagonal(dim1=-2, dim2=-1) != 0).any()):
        raise ValueError("coupling_init must be symmetric with a zero diagonal. Use (J + J.mT) / 2 without diagonal.")
    first, second = map(torch.from_numpy, pair_indices(max_len))
    return matrix.detach()[..., first, second].expand(num_heads, -1).clone()
