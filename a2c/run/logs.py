"""The lines that runs log: JSON objects, read within limits, since they may be a stranger's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from a2c.config import UserError
from a2c.reading import read_lines

LARGEST_LOG = 2**27  # bytes of a file
MOST_LINES = 1_000_000
MOST_KEYS = 500  # of a line


def logged(path: Path, warn: Callable[[str], None] = lambda text: None) -> Iterator[dict[str, Any]]:
    """The JSON objects with a finite `env_steps` from 0 in a file's lines; none if there is no file.

    Args:
        path: of the file.
        warn: called with a sentence if lines were left out, except the incomplete last line of a run in progress.

    Raises:
        UserError: if it is not a regular file, is too large, or cannot be read.
    """
    damaged: list[int] = []
    try:
        for number, line in enumerate(read_lines(path, LARGEST_LOG), 1):
            if number > MOST_LINES:
                raise UserError(f"{path} cannot be read: it has more than {MOST_LINES:,} lines.")
            values = parsed(line)
            if values is not None:
                yield values
            elif line.endswith(b"\n") and line.strip():
                damaged.append(number)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if damaged:
        warn(f"{path}: damaged lines are left out, {len(damaged)} in all, the first is line {damaged[0]}.")


def parsed(line: bytes | str) -> dict[str, Any] | None:
    """The object of a line; None if it is not an object, has too many keys, or no `env_steps` from 0."""
    try:
        text = line if isinstance(line, str) else line.decode(errors="replace")
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or len(values) > MOST_KEYS:
        return None
    return values if as_float(values.get("env_steps")) >= 0 else None


def as_float(value: Any) -> float:
    """A finite number as a float, everything else as NaN."""
    if type(value) not in (int, float):
        return math.nan
    try:
        found = float(value)
    except OverflowError:
        return math.nan
    return found if abs(found) < 1e300 else math.nan  # larger ones cannot be drawn


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become null, at any depth."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
