"""Characters of a text: name the next one at every position."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from qboltz.tasks.base import TEST_SHARE, Batch, Split, check_int

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


@dataclass(frozen=True)
class ShakespeareTask:
    """Windows of ``length`` characters of Tiny Shakespeare or any text; every one is asked for its successor.

    The first nine tenths of the text are for training, the rest for testing; no window crosses the border.

    Args:
        length: ``T``, characters per window, at least 1.
        data: a text file in UTF-8; ``None`` fetches Tiny Shakespeare once and keeps it in the user's cache.

    Raises:
        OSError: the file cannot be read, or fetching failed and there is no copy in the cache.
        ValueError: the text is too short for windows of this length, or the fetched file has the wrong hash.
    """

    length: int = 12
    data: str | Path | None = None

    name: ClassVar[str] = "shakespeare"
    causal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_int("length", self.length, 1)
        for split in ("train", "test"):
            if self._part(split).numel() < self.length + 1:
                raise ValueError(
                    f"the {split} part of the text must have at least {self.length + 1} characters for "
                    f"windows of length {self.length}, got {self._part(split).numel()} of {len(self.text)}."
                )

    @cached_property
    def text(self) -> str:
        """The whole text."""
        path = fetch() if self.data is None else Path(self.data)
        return path.read_text(encoding="utf-8")

    @cached_property
    def alphabet(self) -> str:
        """Its different characters in order; the token of a character is its index."""
        return "".join(sorted(set(self.text)))

    @property
    def vocab_size(self) -> int:
        """Different characters."""
        return len(self.alphabet)

    @property
    def num_classes(self) -> int:
        """Different characters."""
        return len(self.alphabet)

    @cached_property
    def tokens(self) -> Tensor:
        """The text as ``(characters,)`` int64."""
        token_of = {character: token for token, character in enumerate(self.alphabet)}
        return torch.tensor([token_of[character] for character in self.text], dtype=torch.int64)

    @cached_property
    def chance(self) -> float:
        """Share of the test part that is the most frequent character of the training part."""
        common = Counter(self._part("train").tolist()).most_common(1)[0][0]
        return float((self._part("test") == common).double().mean())

    @property
    def chance_note(self) -> str:
        """Which guess ``chance`` is."""
        return "always the most frequent character of the training part (counted on the test part)"

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """``T`` rows per window: all of them."""
        part = self._part(split)
        start = torch.randint(part.numel() - self.length, (size, 1), generator=generator)
        window = part[start + torch.arange(self.length + 1)]  # (B, T + 1)
        return Batch(window[:, :-1], torch.arange(self.length).expand(size, -1), window[:, 1:])

    def _part(self, split: Split) -> Tensor:
        border = len(self.tokens) - int(TEST_SHARE * len(self.tokens))
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}.")
        return self.tokens[:border] if split == "train" else self.tokens[border:]


def fetch(url: str = URL, sha256: str = SHA256, cache: str | Path | None = None) -> Path:
    """The path of a file fetched once by URL and checked against its hash.

    Args:
        url: where from.
        sha256: what it must be; a file of another content is never returned.
        cache: the directory it is kept in; by default the user's cache directory.

    Raises:
        OSError: it is not in the cache and cannot be fetched.
        ValueError: what came has another hash.
    """
    import pooch  # only where a file is wanted: it takes a quarter of a second

    folder = Path(pooch.os_cache("qboltz") if cache is None else cache)
    name = url.rsplit("/", 1)[-1]
    try:
        downloader = pooch.HTTPDownloader(timeout=30)
        return Path(pooch.retrieve(url, known_hash=sha256, fname=name, path=folder, downloader=downloader))
    except OSError as error:  # all that requests raises is an OSError
        raise OSError(
            f"{url} could not be fetched ({type(error).__name__}: {error}) and is not in {folder} yet. "
            "Without a network, give a local text file: --data PATH, or data=PATH in Python."
        ) from error
