"""The model of the main job: a Transformer of one layer around :class:`qboltz.BoltzmannAttention`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from qboltz.attention import BoltzmannAttention
from qboltz.ensemble import Solver
from qboltz.experiments.optimization import stream_seed
from qboltz.functional import Variant
from qboltz.tasks.base import Task


class OneLayerTransformer(nn.Module):
    r"""One attention layer, one optional feed-forward layer, one linear head, read at some rows only.

    .. math::
        x_t &= \mathrm{token}(a_t) + \mathrm{position}_t, \qquad y_r = x_r + \mathrm{attention}(x_r; x, x) \\
        z_r &= y_r + W_2\, \mathrm{gelu}(W_1\, \mathrm{LN}(y_r)), \qquad \mathrm{logits}_r = W\, z_r

    The feed-forward layer is pre-norm. Attention reads the embeddings as they are; its ``q`` and ``k`` are
    normalized per head by ``qk_norm``, which keeps the fields in range: ``|h| <= exp(logit_scale)``.

    Args:
        vocab_size: tokens are ``0 .. vocab_size - 1``.
        num_classes: size of the answers.
        length: ``T``, the longest sequence; the layer has a coupling for each pair of positions.
        width: features; divisible by ``num_heads``.
        num_heads: heads, each with its own couplings.
        variant: ``"h+J"``, ``"h-only"``, ``"J-only"`` or ``"softmax"``.
        solver: who computes the magnetizations, an object or a name; ``.attention.solver`` replaces it.
        coupling_init: ``"zeros"``, ``"neighbor"``, a tensor, or a number: that coupling between neighbors.
        qk_norm: normalize ``q`` and ``k`` and learn one temperature per head.
        ffn: with the feed-forward layer (four times the width).
        causal: row ``r`` sees the positions up to ``r`` only.
        dropout: probability, on attention weights and the feed-forward layer.

    Raises:
        ValueError: an argument is wrong, here or in ``BoltzmannAttention``.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        length: int,
        width: int = 64,
        *,
        num_heads: int = 1,
        variant: Variant = "h+J",
        solver: str | Solver = "exact",
        coupling_init: Literal["zeros", "neighbor"] | float | Tensor = "zeros",
        qk_norm: bool = True,
        ffn: bool = True,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, number in (("vocab_size", vocab_size), ("num_classes", num_classes), ("length", length)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be a positive integer, got {number!r}.")
        self.length, self.causal = length, causal
        if isinstance(coupling_init, (int, float)):
            coupling_init = neighbor_couplings(length, coupling_init)
        self.token = nn.Embedding(vocab_size, width)  # entries of variance 1, torch's default
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.attention = BoltzmannAttention(
            width,
            num_heads,
            length,
            variant=variant,
            solver=solver,
            coupling_init=coupling_init,
            dropout=dropout,
            qk_norm=qk_norm,
        )
        self.ffn = (
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Linear(4 * width, width),
                nn.Dropout(dropout),
            )
            if ffn
            else None
        )
        self.head = nn.Linear(width, num_classes)

    @classmethod
    def for_task(cls, task: Task, *, seed: int, **options: Any) -> OneLayerTransformer:
        """The model that fits ``task``; models of one seed start with equal weights in all variants."""
        torch.manual_seed(stream_seed(seed, "weights"))
        return cls(task.vocab_size, task.num_classes, task.length, causal=task.causal, **options)

    @property
    def variant(self) -> Variant:
        """Which attention this is."""
        return self.attention.variant

    def forward(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Logits ``(B, Q, num_classes)`` of the rows ``(B, Q)`` of tokens ``(B, T)``, all rows by default.

        Only these rows become queries, so a sampling solver runs ``B * Q * num_heads`` models.
        """
        batch, length = tokens.shape
        if length > self.length:
            raise ValueError(f"tokens must be (B, T) with T <= {self.length}, got {tuple(tokens.shape)}.")
        x = self.token(tokens) + self.position[:length]  # (B, T, D)
        if rows is None:
            rows = torch.arange(length, device=tokens.device).expand(batch, length)
        queries = x.gather(1, rows.unsqueeze(-1).expand(-1, -1, x.shape[-1]))  # (B, Q, D)
        hidden = None
        if self.causal:  # (B, 1, Q, T), the same for every head
            hidden = torch.arange(length, device=tokens.device) > rows[:, None, :, None]
        y = queries + self.attention(queries, x, x, attn_mask=hidden, need_weights=False)[0]
        if self.ffn is not None:
            y = y + self.ffn(y)
        logits: Tensor = self.head(y)
        return logits


def neighbor_couplings(length: int, strength: float) -> Tensor:
    """``J_{j,j+1} = strength``, all others 0, ``(T, T)``: the start of a layer that has to step."""
    chain = strength * torch.ones(length - 1)
    return torch.diag(chain, 1) + torch.diag(chain, -1) if length > 1 else torch.zeros(1, 1)
