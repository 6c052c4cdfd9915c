"""Training of stacked models: the same recipe as ``training.train``, for many seeds in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from qboltz.experiments.optimization import TrainingConfig, data_generator, lr_factor
from qboltz.experiments.stacked import StackedTransformer, clip_each_
from qboltz.tasks.base import IGNORED, Batch, Task

#: Steps whose sequences are drawn in one call: drawing a few at a time costs as much as training on them.
BLOCK = 64


@dataclass(frozen=True)
class Curves:
    """What was measured on the way, for every seed.

    Attributes:
        steps: optimizer steps done at each evaluation, ``(E,)``.
        loss: mean cross entropy on the test sequences, ``(E, S)``.
        accuracy: share of right answers there, ``(E, S)``.
        grad_norm: before clipping, at these steps, ``(E, S)``.
    """

    steps: list[int]
    loss: list[list[float]]
    accuracy: list[list[float]]
    grad_norm: list[list[float]]


def train_side_by_side(
    model: StackedTransformer,
    task: Task | Sequence[Task],
    config: TrainingConfig,
    seeds: Sequence[int],
    test: Batch,
    *,
    evaluate_every: int,
    report: Callable[[int, list[float]], None] | None = None,
) -> Curves:
    """Train every seed of ``model`` in place on its own data; ``config.seed`` does not count.

    Args:
        model: one model per seed.
        task: where sequences come from, one for all seeds or one for each; those of seed ``s`` do not depend on which
            other seeds are trained.
        config: steps, batch size per seed, rates and clipping.
        seeds: of the data, one per model.
        test: sequences that all seeds are measured on, or with a leading dimension for each seed its own.
        evaluate_every: steps between evaluations; the last step is always evaluated.
        report: called with the step and the accuracies after every evaluation.

    Raises:
        ValueError: there are not as many seeds, or tasks, as models.
        FloatingPointError: the loss of a seed is not finite.
    """
    if len(seeds) != model.num_seeds:
        raise ValueError(f"seeds must be {model.num_seeds}, one per model, got {len(seeds)}.")
    tasks = [task] * len(seeds) if not isinstance(task, Sequence) else task
    if len(tasks) != len(seeds):
        raise ValueError(f"task must be one, or one for each of {len(seeds)} seeds, got {len(tasks)}.")
    groups = model.parameter_groups(config.lr, config.coupling_lr_factor, config.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=config.betas)
    parameters = list(model.parameters())
    curves = Curves([], [], [], [])
    for step, batch in enumerate(batches(tasks, config, seeds)):
        factor = lr_factor(step, config)
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak_lr"]
        losses = mean_losses(model(batch.tokens, batch.rows), batch.targets)
        optimizer.zero_grad()
        losses.sum().backward()
        norms = clip_each_(parameters, config.clip or float("inf"))
        if not bool(torch.isfinite(losses).all() and torch.isfinite(norms).all()):
            bad = [seed for seed, loss in zip(seeds, losses.tolist(), strict=True) if loss != loss]
            raise FloatingPointError(f"loss and gradient must be finite, got {bad or 'a gradient'} at step {step + 1}.")
        optimizer.step()
        if (step + 1) % evaluate_every == 0 or step + 1 == config.steps:
            loss, accuracy = evaluate_each(model, test)
            curves.steps.append(step + 1)
            curves.loss.append(loss)
            curves.accuracy.append(accuracy)
            curves.grad_norm.append(norms.tolist())
            if report is not None:
                report(step + 1, accuracy)
    return curves


def batches(tasks: Sequence[Task], config: TrainingConfig, seeds: Sequence[int]) -> Iterator[Batch]:
    """The training batches ``(S, B, ...)``; block ``b`` of seed ``s`` depends on ``(s, b)`` alone."""
    for start in range(0, config.steps, BLOCK):
        number = start // BLOCK
        drawn = stacked(
            task.batch(data_generator(seed, "train", number), BLOCK * config.batch_size)
            for task, seed in zip(tasks, seeds, strict=True)
        )
        for step in range(min(BLOCK, config.steps - start)):
            part = slice(step * config.batch_size, (step + 1) * config.batch_size)
            yield Batch(drawn.tokens[:, part], drawn.rows[:, part], drawn.targets[:, part])


def stacked(each: Iterable[Batch]) -> Batch:
    """Batches of equal shape as one with a leading dimension ``S``."""
    several = list(each)
    tokens, rows, targets = (
        torch.stack([getattr(batch, name) for batch in several]) for name in ("tokens", "rows", "targets")
    )
    return Batch(tokens, rows, targets)


def mean_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of each seed over its rows that count, ``(S,)``."""
    losses = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view(len(targets), -1).sum(1) / (targets != IGNORED).flatten(1).sum(1)


@torch.no_grad()
def evaluate_each(model: StackedTransformer, test: Batch, chunk: int = 256) -> tuple[list[float], list[float]]:
    """Mean loss and accuracy of each seed on ``test``, shared ``(B, T)`` or its own ``(S, B, T)``."""
    if test.tokens.dim() == 2:
        test = stacked([test] * model.num_seeds)
    loss = torch.zeros(model.num_seeds, dtype=torch.float64)
    right = torch.zeros(model.num_seeds, dtype=torch.float64)
    asked = (test.targets != IGNORED).flatten(1).sum(1)
    for start in range(0, test.tokens.shape[1], chunk):
        part = slice(start, start + chunk)
        targets = test.targets[:, part]
        logits = model(test.tokens[:, part], test.rows[:, part])
        loss += mean_losses(logits, targets) * (targets != IGNORED).flatten(1).sum(1)
        right += (logits.argmax(-1) == targets).flatten(1).sum(1)
    return (loss / asked).tolist(), (right / asked).tolist()
