"""How a model is trained, as data, and what follows from that alone: learning rates, data order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from qboltz.seeds import integer_seed
from qboltz.tasks.base import Split, check_int

#: First number of the spawn keys: independent streams of one seed.
STREAMS = {"train": 0, "test": 1, "torch": 2, "weights": 3}


@dataclass(frozen=True)
class TrainingConfig:
    """AdamW; the learning rate is warmed up linearly, then annealed to 0 along a cosine.

    Args:
        steps: optimizer steps.
        batch_size: sequences per step, over all processes.
        lr: the highest learning rate.
        coupling_lr_factor: times this for the couplings, which have no weight decay.
        weight_decay: of matrices; vectors and scalars have none.
        betas: of AdamW.
        warmup: share of the steps that is warm-up.
        clip: largest norm of the gradient; ``None`` does not clip.
        seed: of weights, data and everything else.
        checkpoint_every: steps between checkpoints; one is also written at the start, the end and at a stop.

    Raises:
        ValueError: a value is out of range.
    """

    steps: int = 200
    batch_size: int = 64
    lr: float = 3e-3
    coupling_lr_factor: float = 1.0
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: float = 0.1
    clip: float | None = 1.0
    seed: int = 0
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        for name, minimum in (("steps", 1), ("batch_size", 1), ("seed", 0), ("checkpoint_every", 1)):
            check_int(name, getattr(self, name), minimum)
        for name in ("lr", "coupling_lr_factor", "weight_decay"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a non-negative number, got {value!r}.")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup must be in [0, 1), got {self.warmup!r}.")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive or None, got {self.clip!r}.")


def lr_factor(step: int, config: TrainingConfig) -> float:
    """Share of the highest learning rate at step ``0 .. steps - 1``; a pure function without state."""
    warmup = config.warmup * config.steps
    if step + 1 <= warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (config.steps - warmup)))


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Three groups: couplings (faster, no decay), vectors and scalars (no decay), matrices."""
    couplings: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if name.endswith("coupling_weights"):
            couplings.append(parameter)
        else:
            (vectors if parameter.dim() < 2 else matrices).append(parameter)
    fast = config.lr * config.coupling_lr_factor
    groups = [
        {"params": couplings, "peak_lr": fast, "weight_decay": 0.0},
        {"params": vectors, "peak_lr": config.lr, "weight_decay": 0.0},
        {"params": matrices, "peak_lr": config.lr, "weight_decay": config.weight_decay},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=config.lr, betas=config.betas)


def stream_seed(seed: int, stream: str, number: int = 0) -> int:
    """A 63-bit seed that depends on its arguments alone."""
    return integer_seed(np.random.SeedSequence(seed, spawn_key=(STREAMS[stream], number)))


def data_generator(seed: int, split: Split, step: int = 0) -> torch.Generator:
    """The generator of one batch, a pure function of its arguments: the order of the data needs no state."""
    return torch.Generator().manual_seed(stream_seed(seed, split, step))
