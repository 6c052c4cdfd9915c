"""Files of JSON lines, as they are found: the last line may be half written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Lines:
    """What a file holds.

    Attributes:
        records: its objects in order.
        torn: the last line is no JSON: it is being written, or whoever wrote it was stopped.
    """

    records: list[dict[str, Any]]
    torn: bool = False


def read_lines(path: Path) -> Lines:
    """The records of a file of JSON lines; half a last line is left out.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line before the last is no JSON, or a line is no object.
    """
    found: list[dict[str, Any]] = []
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:  # UnicodeDecodeError is one too
            if number == len(lines):
                return Lines(found, torn=True)
            raise ValueError(f"{path} must hold one JSON object a line, but line {number} is none: {error}.") from error
        if not isinstance(record, dict):
            raise ValueError(f"{path} must hold one JSON object a line, got {type(record).__name__} in line {number}.")
        found.append(record)
    return Lines(found)
