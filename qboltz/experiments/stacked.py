"""Many seeds of one small Transformer trained side by side, as one model whose parameters have a leading dimension.

The models are so small that a step is mostly overhead; ten seeds at once cost little more than one. Each seed keeps its
own weights, data, gradient norm and learned couplings: nothing is shared but the clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qboltz.ensemble import Solver
from qboltz.errors import unknown_name
from qboltz.experiments.model import OneLayerTransformer, neighbor_couplings
from qboltz.functional import Variant, attention_weights
from qboltz.solvers.exact import ExactSolver
from qboltz.spins import num_pairs, pair_indices
from qboltz.tasks.base import Task

Kind = Literal["softmax", "softmax+bias", "softmax+mixing", "h-only", "h+bias", "J-only", "h+J"]

#: The four variants of the layer, and the classical rivals of ``J``, which have as many extra numbers as ``J``: a
#: symmetric matrix over pairs of positions that is added to the scores of (query, key), or that mixes the scores of
#: one query linearly, ``softmax((1 + A) h)``.
KINDS: dict[str, Variant] = {
    "softmax": "softmax",
    "softmax+bias": "softmax",
    "softmax+mixing": "softmax",
    "h-only": "h-only",
    "h+bias": "h-only",
    "J-only": "J-only",
    "h+J": "h+J",
}
#: Smallest norm that a query or key is divided by, as in ``torch.nn.functional.normalize``.
NORM_FLOOR = 1e-12
#: Those with a matrix of their own in place of ``J``.
RIVALS = ("softmax+bias", "softmax+mixing", "h+bias")


class StackedTransformer(nn.Module):
    """``S`` models of :class:`qboltz.experiments.model.OneLayerTransformer` with one head, one per seed.

    Args:
        models: equal in everything but their weights; one head, no dropout.
        kind: which attention, a key of ``KINDS``; the models must be of its variant.
        solver: who computes magnetizations.
        pair_init: start of a rival's matrix, ``(T, T)``, symmetric; zero without it.

    Raises:
        ValueError: ``kind`` is unknown, or the models do not fit.
    """

    def __init__(
        self,
        models: Sequence[OneLayerTransformer],
        kind: Kind,
        solver: Solver | None = None,
        pair_init: Tensor | None = None,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(unknown_name("kind", kind, KINDS))
        if not models or any(m.variant != KINDS[kind] or m.attention.num_heads != 1 for m in models):
            raise ValueError(f"models must be at least one, of one head and variant {KINDS[kind]!r} for {kind!r}.")
        first = models[0]
        self.kind, self.num_seeds, self.length, self.causal = kind, len(models), first.length, first.causal
        self.width = first.token.embedding_dim
        self.qk_norm, self.ffn = first.attention.logit_scale is not None, first.ffn is not None
        self.solver: Solver = ExactSolver() if solver is None else solver
        #: Parameters by the name they have in one model, each ``(S, ...)``.
        self.names = [name for name, _ in first.named_parameters()]
        self.stack = nn.ParameterList(
            torch.stack([dict(m.named_parameters())[name].detach() for m in models]) for name in self.names
        )
        #: The rivals' number per pair of positions, ``(S, T (T - 1) / 2)``.
        self.pairs = None
        if kind in RIVALS:
            start = torch.zeros(num_pairs(self.length))
            if pair_init is not None:
                j, k = map(torch.from_numpy, pair_indices(self.length))
                start = pair_init[j, k]
            self.pairs = nn.Parameter(start.repeat(self.num_seeds, 1))

    @classmethod
    def for_task(
        cls,
        task: Task,
        kind: Kind,
        seeds: Sequence[int],
        *,
        solver: Solver | None = None,
        coupling_init: float | Tensor = 0.0,
        **options: Any,
    ) -> StackedTransformer:
        """Models for ``task``; those of one seed start with equal weights in all kinds.

        ``coupling_init`` is the start of ``J``, or of a rival's matrix: ``(T, T)``, or a number between neighbors.
        """
        if kind not in KINDS:
            raise ValueError(unknown_name("kind", kind, KINDS))
        start = coupling_init if isinstance(coupling_init, Tensor) else neighbor_couplings(task.length, coupling_init)
        models = [
            OneLayerTransformer.for_task(task, seed=seed, variant=KINDS[kind], coupling_init=start, **options)
            for seed in seeds
        ]
        return cls(models, kind, solver, start)

    @property
    def num_parameters(self) -> int:
        """Trainable numbers of one model."""
        return sum(parameter[0].numel() for parameter in self.parameters())

    @property
    def couplings(self) -> Tensor | None:
        """``J`` of every seed, ``(S, T, T)``; for a rival its matrix; ``None`` without any."""
        name = "attention.coupling_weights"
        pairs = self.pairs
        if pairs is None:
            if name not in self.names:
                return None
            pairs = self.stack[self.names.index(name)].squeeze(1)
        first, second = map(torch.from_numpy, pair_indices(self.length))
        dense = pairs.new_zeros(self.num_seeds, self.length, self.length)
        dense[:, first, second] = pairs
        return dense + dense.mT

    def forward(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Logits ``(S, B, Q, classes)`` of the rows ``(S, B, Q)`` of tokens ``(S, B, T)``, seed by seed.

        The embeddings ``x`` of all positions are never made. With ``x_j = token_j + position_j``,
        ``q . (W_k x_j + b_k) = (W_k^T q) . x_j + q . b_k`` and ``sum_j w_j (W_v x_j + b_v) = W_v sum_j w_j x_j + b_v``
        (the weights sum to 1) need one product per query instead of one per key.
        """
        w = dict(zip(self.names, self.stack, strict=True))
        seeds = torch.arange(self.num_seeds).view(-1, 1, 1)
        position = w["position"][:, : tokens.shape[-1]]
        queries = w["token.weight"][seeds, tokens.gather(2, rows.flatten(2))] + position[seeds, rows]  # (S, B, Q, D)
        at = tokens.unsqueeze(2).expand(-1, -1, rows.shape[2], -1)  # (S, B, Q, T)
        weights = self.weights(queries, tokens, rows, w)  # (S, B, Q, T)
        counts = weights.new_zeros(*rows.shape, w["token.weight"].shape[1]).scatter_add(3, at, weights)
        attended = product(counts, w["token.weight"]) + product(weights, position)
        weight, bias = self._projection(w, 2)
        heads = product(attended, weight.mT) + weights.sum(-1, keepdim=True) * bias[:, None, None]
        y = queries + linear(heads, w["attention.out_proj.weight"], w["attention.out_proj.bias"])
        if self.ffn:
            normed = F.layer_norm(y, (self.width,)) * w["ffn.0.weight"][:, None, None] + w["ffn.0.bias"][:, None, None]
            hidden = F.gelu(linear(normed, w["ffn.1.weight"], w["ffn.1.bias"]))
            y = y + linear(hidden, w["ffn.3.weight"], w["ffn.3.bias"])
        return linear(y, w["head.weight"], w["head.bias"])

    def weights(self, queries: Tensor, tokens: Tensor, rows: Tensor, w: dict[str, Tensor]) -> Tensor:
        """Attention weights ``(S, B, Q, T)`` of the embedded queries ``(S, B, Q, D)``."""
        length = tokens.shape[2]
        if self.kind == "J-only":
            return self._weights_without_fields(length)[torch.arange(self.num_seeds).view(-1, 1, 1), rows]
        scores = self._scores(queries, tokens, w)
        visible = None
        if self.causal:
            visible = torch.arange(length) <= rows.unsqueeze(-1)  # (S, B, Q, T)
        matrix = None if self.couplings is None else self.couplings[:, :length, :length]
        if self.kind == "softmax+mixing":
            seen = scores if visible is None else scores * visible
            scores = scores + product(seen, matrix)  # type: ignore[arg-type]  # a hidden key mixes into nothing
        elif self.kind in RIVALS:
            seeds = torch.arange(self.num_seeds).view(-1, 1, 1)
            scores = scores + matrix[seeds, rows]  # type: ignore[index]  # (S, B, Q, T)
        shared = matrix[:, None] if self.kind == "h+J" else None  # type: ignore[index]  # (S, 1, T, T)
        return attention_weights(scores, shared, visible, solver=self.solver, variant=KINDS[self.kind])

    def _scores(self, queries: Tensor, tokens: Tensor, w: dict[str, Tensor]) -> Tensor:
        """``(S, B, Q, T)``."""
        length = tokens.shape[2]
        table, position = w["token.weight"], w["position"][:, :length]
        weight, bias = self._projection(w, 1)
        q = linear(queries, *self._projection(w, 0))
        folded = product(q, weight)
        at = tokens.unsqueeze(2).expand(-1, -1, q.shape[2], -1)
        scores = product(folded, table.mT).gather(3, at) + product(folded, position.mT)
        scores = scores + product(q, bias.unsqueeze(2))
        if not self.qk_norm:
            return scores / math.sqrt(self.width)
        every = linear(table.unsqueeze(2) + position.unsqueeze(1), weight, bias)  # keys of each token at each position
        norms: Tensor = torch.linalg.vector_norm(every, dim=-1).clamp_min(NORM_FLOOR)  # (S, V, T)
        seeds = torch.arange(self.num_seeds).view(-1, 1, 1)
        of_keys = norms[seeds, tokens, torch.arange(length)]  # (S, B, T)
        scale = w["attention.logit_scale"].exp().view(-1, 1, 1, 1)
        of_queries: Tensor = torch.linalg.vector_norm(q, dim=-1, keepdim=True).clamp_min(NORM_FLOOR)
        return scores * scale / (of_queries * of_keys.unsqueeze(2))

    def _weights_without_fields(self, length: int) -> Tensor:
        """Attention weights of every position ``(S, T, T)`` with ``h = 0``: the same in every sequence."""
        couplings = self.couplings[:, :length, :length]  # type: ignore[index]
        visible = torch.ones(length, length, dtype=torch.bool).tril() if self.causal else None
        fields = couplings.new_zeros(self.num_seeds, length if self.causal else 1, length)
        weights = attention_weights(fields, couplings, visible, solver=self.solver, variant="J-only")
        return weights.expand(-1, length, -1)

    def _projection(self, w: dict[str, Tensor], which: int) -> tuple[Tensor, Tensor]:
        """Weight and bias of the query, key or value projection."""
        return (
            w["attention.in_proj_weight"].chunk(3, 1)[which],
            w["attention.in_proj_bias"].chunk(3, 1)[which],
        )

    def parameter_groups(self, lr: float, coupling_lr_factor: float, weight_decay: float) -> list[dict[str, Any]]:
        """As for one model: numbers over pairs (own rate), vectors and scalars (no decay), matrices."""
        couplings: list[Tensor] = [] if self.pairs is None else [self.pairs]
        vectors: list[Tensor] = []
        matrices: list[Tensor] = []
        for name, parameter in zip(self.names, self.stack, strict=True):
            if name.endswith("coupling_weights"):
                couplings.append(parameter)
            else:
                (vectors if parameter.dim() < 3 else matrices).append(parameter)
        groups = [
            {"params": couplings, "peak_lr": lr * coupling_lr_factor, "weight_decay": 0.0},
            {"params": vectors, "peak_lr": lr, "weight_decay": 0.0},
            {"params": matrices, "peak_lr": lr, "weight_decay": weight_decay},
        ]
        return [group for group in groups if group["params"]]


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """``x M`` seed by seed: ``(S, B, R, D)`` and ``(S, D, E)`` to ``(S, B, R, E)``."""
    return torch.bmm(x.flatten(1, 2), matrix).view(*x.shape[:3], -1)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``x W^T + b`` seed by seed: ``(S, B, R, D)``, ``(S, E, D)`` and ``(S, E)`` to ``(S, B, R, E)``."""
    flat = x.flatten(1, 2)
    return torch.baddbmm(bias.unsqueeze(1), flat, weight.mT).view(*x.shape[:3], -1)


def clip_each_(parameters: Sequence[Tensor], largest: float) -> Tensor:
    """Scale the gradients of each seed to a norm of at most ``largest``; the norms before, ``(S,)``."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0).sqrt()
    factors = (largest / norms.clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
    return norms
