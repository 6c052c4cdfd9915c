"""Brute force: every configuration of every model, float64, differentiable by autograd. Shares no code with qboltz."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """``log_z (...)``, ``mean (..., n)``, ``second (..., n, n)`` = <s_k s_l>; zeros where a spin is not visible."""

    log_z: Tensor
    mean: Tensor
    second: Tensor
    entropy: Tensor


def brute_force(fields: Tensor, couplings: Tensor, visible: Tensor | None = None, beta: float = 1.0) -> Moments:
    """Moments of ``exp(-beta E)/Z``: a sum over the configurations of the visible spins, one model after the other."""
    h = fields.double()
    n = h.shape[-1]
    batch = h.shape[:-1]
    J = couplings.double().expand(*batch, n, n)
    v = torch.ones_like(h, dtype=torch.bool) if visible is None else visible.expand(h.shape)
    rows = [
        _one(h_i, J_i, v_i, beta)
        for h_i, J_i, v_i in zip(h.reshape(-1, n), J.reshape(-1, n, n), v.reshape(-1, n), strict=True)
    ]
    if not rows:
        zero = h.new_zeros
        return Moments(zero(batch), zero(h.shape), zero((*batch, n, n)), zero(batch))
    shapes = (batch, (*batch, n), (*batch, n, n), batch)
    return Moments(
        *(torch.stack(part).reshape(shape) for part, shape in zip(zip(*rows, strict=True), shapes, strict=True))
    )


def _one(h: Tensor, J: Tensor, visible: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    places = [j for j in range(len(h)) if bool(visible[j])]
    states = []
    for values in itertools.product((1.0, -1.0), repeat=len(places)):
        s = h.new_zeros(len(h))
        for j, value in zip(places, values, strict=True):
            s[j] = value
        states.append(s)
    S = torch.stack(states)
    # sum over pairs k < l only: the upper triangle, so that the derivative is with respect to J[k, l], k < l
    pairs = [(k, m) for k in range(len(h)) for m in range(k + 1, len(h))]
    log_weight = beta * (S @ h + sum((J[k, m] * S[:, k] * S[:, m] for k, m in pairs), h.new_zeros(len(S))))
    log_z = torch.logsumexp(log_weight, 0)
    p = torch.exp(log_weight - log_z)
    return log_z, p @ S, S.mT @ (p[:, None] * S), log_z - p @ log_weight
