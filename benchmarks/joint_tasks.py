"""Tasks in which keys have to be chosen jointly: where couplings might do what a linear mixing of scores cannot.

Each is a :class:`qboltz.tasks.base.Task` for one attention layer that reads one row. They differ in what decides
whether a position is to be attended to:

* ``segments``: whether it lies in the same segment as the key that is asked for, however far, with separators between
  segments at places that change. What is between two positions decides whether one pulls the other: a set that is
  chosen as a whole.
* ``latest``: pairs with repeated keys, the value of the latest one counts: a match excludes the matches before it.
* ``cues``: items of two features and a value; the query names both features, and other items share one of them:
  agreement of two cues.
* ``ring``: numbers on a ring; is the marked one in the independent set (no two neighbors) of greatest sum? Choices
  exclude each other around a ring of odd length, which frustrates them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from qboltz.tasks.base import Batch, Split, Task, draw_split, held_out_range


class JointTask(ABC):
    """What the tasks share: all columns of a drawn row but the last decide whether it is for training or testing."""

    causal: ClassVar[bool] = False

    def _split(self, generator: torch.Generator, size: int, split: Split) -> Tensor:
        return draw_split(lambda count: self._draw(generator, count), size, split, self._held_out, key=slice(0, -1))

    @cached_property
    def _held_out(self) -> tuple[float, float]:
        generator = torch.Generator().manual_seed(0)
        return held_out_range(lambda count: self._draw(generator, count)[:, :-1])

    @abstractmethod
    def _draw(self, generator: torch.Generator, count: int) -> Tensor:
        """``(count, columns)``."""


class ValueTask(JointTask):
    """The last row asks for a value."""

    length: int
    num_values: int

    @property
    def num_classes(self) -> int:
        return self.num_values

    @property
    def chance(self) -> float:
        return 1 / self.num_values

    @property
    def chance_note(self) -> str:
        return "a value at random"

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """The last row asks."""
        tokens = self._split(generator, size, split)
        return Batch(tokens, torch.full((size, 1), self.length - 1), self._answers(tokens))

    @abstractmethod
    def _answers(self, tokens: Tensor) -> Tensor:
        """Targets ``(count, 1)`` of drawn sequences."""


@dataclass(frozen=True)
class SegmentTask(ValueTask):
    """Segments ``. . k . v . | v k . | ...`` and a key; the answer is the value in the segment of that key.

    Tokens: separator 0, filler 1, ``num_keys`` keys, ``num_values`` values. Each segment holds one key and one value at
    random places, keys differ, segment lengths are uniform among those of at least two that fill the sequence.
    """

    length: int = 12
    num_segments: int = 3
    num_keys: int = 8
    num_values: int = 8

    name: ClassVar[str] = "segments"

    @property
    def vocab_size(self) -> int:
        return 2 + self.num_keys + self.num_values

    @cached_property
    def _lengths(self) -> Tensor:
        """All ways to fill the sequence, ``(W, num_segments)``."""
        content = self.length - self.num_segments  # the query and the separators between segments left out
        ways = itertools.product(range(2, content + 1), repeat=self.num_segments)
        return torch.tensor([way for way in ways if sum(way) == content])

    def _answers(self, tokens: Tensor) -> Tensor:
        context, asked = tokens[:, :-1], tokens[:, -1:]
        segment = (context == 0).cumsum(1)
        inside = segment == segment.gather(1, (context == asked).long().argmax(1, keepdim=True))
        value = inside & (context >= 2 + self.num_keys)
        return (context * value).sum(1, keepdim=True) - 2 - self.num_keys

    def _draw(self, generator: torch.Generator, count: int) -> Tensor:
        lengths = self._lengths[torch.randint(len(self._lengths), (count,), generator=generator)]  # (count, S)
        starts = lengths.cumsum(1) - lengths + torch.arange(self.num_segments)
        tokens = torch.ones(count, self.length, dtype=torch.int64)
        tokens.scatter_(1, starts[:, 1:] - 1, 0)
        keys = 2 + torch.rand(count, self.num_keys, generator=generator).argsort(1)[:, : self.num_segments]
        values = torch.randint(self.num_values, (count, self.num_segments), generator=generator)
        key_at = (torch.rand(lengths.shape, generator=generator) * lengths).long()
        step = 1 + (torch.rand(lengths.shape, generator=generator) * (lengths - 1)).long()
        tokens.scatter_(1, starts + key_at, keys)
        tokens.scatter_(1, starts + (key_at + step) % lengths, 2 + self.num_keys + values)
        asked = torch.randint(self.num_segments, (count, 1), generator=generator)
        tokens[:, -1:] = keys.gather(1, asked)
        return tokens


@dataclass(frozen=True)
class LatestTask(ValueTask):
    """``k v k v ... q`` with keys that repeat; the answer is the value of the latest pair with key ``q``."""

    length: int = 13
    num_keys: int = 4
    num_values: int = 8

    name: ClassVar[str] = "latest"

    @property
    def vocab_size(self) -> int:
        return self.num_keys + self.num_values

    def _answers(self, tokens: Tensor) -> Tensor:
        same = tokens[:, 0:-1:2] == tokens[:, -1:]
        latest = (same * torch.arange(same.shape[1])).argmax(1, keepdim=True)
        return tokens[:, 1::2].gather(1, latest) - self.num_keys

    def _draw(self, generator: torch.Generator, count: int) -> Tensor:
        pairs = (self.length - 1) // 2
        keys = torch.randint(self.num_keys, (count, pairs), generator=generator)
        values = self.num_keys + torch.randint(self.num_values, (count, pairs), generator=generator)
        asked = torch.randint(pairs, (count, 1), generator=generator)
        return torch.cat([torch.stack([keys, values], 2).flatten(1), keys.gather(1, asked)], 1)


@dataclass(frozen=True)
class CuesTask(ValueTask):
    """``a b v a b v ... q``: ``q`` names a first and a second feature, the answer is the value of the item with both.

    All items differ; at least one other item shares the first feature of the asked one, and one the second.
    """

    length: int = 13
    num_features: int = 3
    num_values: int = 8

    name: ClassVar[str] = "cues"

    @property
    def vocab_size(self) -> int:
        return 2 * self.num_features + self.num_values + self.num_features**2

    def _answers(self, tokens: Tensor) -> Tensor:
        first, second, value = self._items(tokens)
        hit = self._asked(tokens) == first * self.num_features + second
        return (value * hit).sum(1, keepdim=True)

    def _items(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, value = tokens[:, :-1].unflatten(1, (-1, 3)).unbind(2)
        return first, second - self.num_features, value - 2 * self.num_features

    def _asked(self, tokens: Tensor) -> Tensor:
        return tokens[:, -1:] - 2 * self.num_features - self.num_values

    def _draw(self, generator: torch.Generator, count: int) -> Tensor:
        items, kinds = (self.length - 1) // 3, self.num_features**2
        found: list[Tensor] = []
        missing = count
        while missing > 0:
            drawn = torch.rand(4 * missing + 16, kinds, generator=generator).argsort(1)[:, :items]
            first, second = drawn // self.num_features, drawn % self.num_features
            rivals = (first[:, 1:] == first[:, :1]).any(1) & (second[:, 1:] == second[:, :1]).any(1)
            found.append(drawn[rivals][:missing])
            missing -= len(found[-1])
        drawn = torch.cat(found)
        asked = drawn[:, :1] + 2 * self.num_features + self.num_values
        order = torch.rand(count, items, generator=generator).argsort(1)
        drawn = drawn.gather(1, order)
        values = torch.randint(self.num_values, drawn.shape, generator=generator) + 2 * self.num_features
        parts = [drawn // self.num_features, self.num_features + drawn % self.num_features, values]
        return torch.cat([torch.stack(parts, 2).flatten(1), asked], 1)


@dataclass(frozen=True)
class RingTask(JointTask):
    """Numbers on a ring; the marked one asks: am I in the independent set of greatest sum? Ties do not occur.

    Found by enumerating the independent sets of the ring. Tokens: ``num_levels`` levels, unmarked, then marked.
    """

    length: int = 9
    num_levels: int = 9

    name: ClassVar[str] = "ring"

    @property
    def vocab_size(self) -> int:
        return 2 * self.num_levels

    @property
    def num_classes(self) -> int:
        return 2

    @property
    def chance(self) -> float:
        return 0.5

    @property
    def chance_note(self) -> str:
        return "about a half of the positions are chosen"

    @cached_property
    def _sets(self) -> Tensor:
        """All independent sets of the ring, ``(K, n)`` of 0 and 1."""
        every = torch.tensor(list(itertools.product((0, 1), repeat=self.length)))
        return every[(every * every.roll(1, 1)).sum(1) == 0]

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """The marked row asks; ``1`` says yes."""
        drawn = self._split(generator, size, split)
        levels, marked = drawn[:, :-1], drawn[:, -1:]
        best = self._sets[(levels.double() @ self._sets.double().T).argmax(1)]
        tokens = levels - 1
        tokens = tokens.scatter(1, marked, tokens.gather(1, marked) + self.num_levels)
        return Batch(tokens, marked, best.gather(1, marked))

    def _draw(self, generator: torch.Generator, count: int) -> Tensor:
        """Levels from 1 and the marked position, ``(count, n + 1)``."""
        found: list[Tensor] = []
        missing = count
        while missing > 0:
            levels = torch.randint(1, self.num_levels + 1, (2 * missing + 16, self.length), generator=generator)
            top = (levels.double() @ self._sets.double().T).topk(2, 1).values
            found.append(levels[top[:, 0] > top[:, 1]][:missing])
            missing -= len(found[-1])
        levels = torch.cat(found)
        return torch.cat([levels, torch.randint(self.length, (count, 1), generator=generator)], 1)


JOINT_TASKS: dict[str, type[SegmentTask] | type[LatestTask] | type[CuesTask] | type[RingTask]] = {
    "segments": SegmentTask,
    "latest": LatestTask,
    "cues": CuesTask,
    "ring": RingTask,
}


def make_joint(name: str, **options: int) -> Task:
    """A task of this module by name."""
    return JOINT_TASKS[name](**options)
