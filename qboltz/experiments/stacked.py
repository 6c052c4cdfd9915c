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
from qboltz.experiments.model import OneLayerTransformer
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


class StackedTransformer(nn.Module):
    """``S`` models of :class:`qboltz.experiments.model.OneLayerTransformer` with one head, one per seed.

    Args:
        models: equal in everything but their weights; one head, no dropout.
        kind: which attention, a key of ``KINDS``; the models must be of its variant.
        solver: who computes magnetizations.

    Raises:
        ValueError: ``kind`` is unknown, or the models do not fit.
    """

    def __init__(self, models: Sequence[OneLayerTransformer], kind: Kind, solver: Solver | None = None) -> None:
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
        #: The rivals' number per pair of positions, ``(S, T (T - 1) / 2)``, zero at the start.
        has_pairs = kind in ("softmax+bias", "softmax+mixing", "h+bias")
        self.pairs = nn.Parameter(torch.zeros(self.num_seeds, num_pairs(self.length))) if has_pairs else None

    @classmethod
    def for_task(
        cls, task: Task, kind: Kind, seeds: Sequence[int], *, solver: Solver | None = None, **options: Any
    ) -> StackedTransformer:
        """Models for ``task``; those of one seed start with equal weights in all kinds."""
        if kind not in KINDS:
            raise ValueError(unknown_name("kind", kind, KINDS))
        models = [OneLayerTransformer.for_task(task, seed=seed, variant=KINDS[kind], **options) for seed in seeds]
        return cls(models, kind, solver)

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
        """Logits ``(S, B, Q, classes)`` of the rows ``(S, B, Q)`` of tokens ``(S, B, T)``, seed by seed."""
        w = dict(zip(self.names, self.stack, strict=True))
        seeds = torch.arange(self.num_seeds).view(-1, 1, 1)
        length = tokens.shape[-1]
        x = w["token.weight"][seeds, tokens] + w["position"][:, None, :length]  # (S, B, T, D)
        queries = x.gather(2, rows.unsqueeze(-1).expand(*rows.shape, self.width))  # (S, B, Q, D)
        weights = self.weights(queries, x, rows, w)  # (S, B, Q, T)
        heads = weights @ linear(x, *self._projection(w, 2))
        y = queries + linear(heads, w["attention.out_proj.weight"], w["attention.out_proj.bias"])
        if self.ffn:
            normed = F.layer_norm(y, (self.width,)) * w["ffn.0.weight"][:, None, None] + w["ffn.0.bias"][:, None, None]
            hidden = F.gelu(linear(normed, w["ffn.1.weight"], w["ffn.1.bias"]))
            y = y + linear(hidden, w["ffn.3.weight"], w["ffn.3.bias"])
        return linear(y, w["head.weight"], w["head.bias"])

    def weights(self, queries: Tensor, x: Tensor, rows: Tensor, w: dict[str, Tensor]) -> Tensor:
        """Attention weights ``(S, B, Q, T)``."""
        if self.kind == "J-only":
            return self._weights_without_fields(x.shape[2])[torch.arange(self.num_seeds).view(-1, 1, 1), rows]
        q, k = linear(queries, *self._projection(w, 0)), linear(x, *self._projection(w, 1))
        if self.qk_norm:
            scale = w["attention.logit_scale"].exp().view(-1, 1, 1, 1)
            scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * scale
        else:
            scores = q @ k.mT / math.sqrt(self.width)
        length = x.shape[2]
        visible = None
        if self.causal:
            visible = torch.arange(length) <= rows.unsqueeze(-1)  # (S, B, Q, T)
        matrix = None if self.couplings is None else self.couplings[:, :length, :length]
        if self.kind == "softmax+mixing":
            seen = scores if visible is None else scores * visible
            scores = scores + seen @ matrix[:, None]  # type: ignore[index]  # a hidden key mixes into nothing
        elif self.kind in ("softmax+bias", "h+bias"):
            seeds = torch.arange(self.num_seeds).view(-1, 1, 1)
            scores = scores + matrix[seeds, rows]  # type: ignore[index]  # (S, B, Q, T)
        shared = matrix[:, None] if self.kind == "h+J" else None  # type: ignore[index]  # (S, 1, T, T)
        return attention_weights(scores, shared, visible, solver=self.solver, variant=KINDS[self.kind])

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
