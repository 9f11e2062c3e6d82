"""Parts of messages: numbers, values as they were typed, the nearest names, what is allowed."""

from __future__ import annotations

import difflib
import math
import reprlib
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HUGE = 1e12
MOST_MISTAKES = 8  # told at once
LIST_KEYS = " `a2c config` lists all keys."


def joined(sentences: Sequence[str], *, more: int = 0) -> str:
    """Sentences about mistakes, up to MOST_MISTAKES, with LIST_KEYS once, at their end; `more`: not in them."""
    few, rest = sentences[:MOST_MISTAKES], sentences[MOST_MISTAKES:]
    text = " ".join(sentence.removesuffix(LIST_KEYS) for sentence in few)
    if any(sentence.endswith(LIST_KEYS) for sentence in few):
        text += LIST_KEYS
    more += len(rest)
    return f"{text} (and {more} more)" if more else text


def number(value: float | None, form: str = ",.2f", *, missing: str = "-") -> str:
    """A number for a table, shorter than its format says if it is huge; `missing` if it is None, NaN or infinite."""
    if value is None or not math.isfinite(value):
        return missing
    return format(value, form if abs(value) < HUGE else ".4g")


def counted(many: int, noun: str) -> str:
    """`1 game`, `1,000 games`."""
    return f"{many:,} {noun}{'s' * (many != 1)}"


def nearest(word: str, allowed: list[str]) -> str:
    """` Did you mean ...?` with the nearest matches, or nothing."""
    lowered = {name.lower(): name for name in allowed}
    matches = difflib.get_close_matches(word[:80].lower(), lowered, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(lowered[match] for match in matches)}?" if matches else ""


def printable(text: str) -> str:
    """A text from a file or a name, made safe for a screen or a page: on one line, without control characters.

    Control characters, marks that change the writing direction, and bytes that are not text are escaped as in Python.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_lines(text: str) -> str:
    """As `printable`, but the ends of lines are kept."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode("ascii")


def cut(value: Any) -> str:
    """A value as a printable text of at most 200 characters."""
    text = value if isinstance(value, str) else _Short(80).repr(value)
    return printable(text[:200])[:200]


def shown(value: Any, most: int = 80) -> str:
    """A value for a sentence: its `repr` on one line, cut to `most` characters."""
    text = _Short(most).repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def last_line(text: str) -> str:
    """The last line that is not blank, for an error of a process: what it wrote last."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def interval(bounds: Sequence[float] | None) -> str:
    """The two ends of an interval for a table; `-` if there is none."""
    return "-" if bounds is None else " to ".join(map(number, bounds))


def typed(path: Path) -> str:
    """A path as it is typed after a command: quoted if need be, and never taken for an option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def typed_command(command: str, path: Path, words: Iterable[str] = ()) -> str:
    """`a2c COMMAND PATH WORDS`, as it is typed."""
    return " ".join(["a2c", command, typed(path), *map(shlex.quote, words)])


def short_key(key: str) -> str:
    """The short name of a key, for labels: its last word, or its section if the last word is `name`."""
    section, _, name = key.rpartition(".")
    return section if name == "name" else name


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """A label for each key: the short name, unless two keys would share it."""
    short = {key: short_key(key) for key in keys}
    return {key: name if list(short.values()).count(name) == 1 else key for key, name in short.items()}


class _Short(reprlib.Repr):
    """A `repr` that never builds what `shown` would cut: a few lines of YAML can expand beyond the memory."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, most, most

    def repr_int(self, x: int, level: int) -> str:
        """Python raises an error for integers of thousands of digits."""
        return repr(x) if x.bit_length() < 200 else f"an integer of {x.bit_length()} bits"

    def repr_bool(self, x: bool, level: int) -> str:
        """As it was typed, in YAML."""
        return "true" if x else "false"

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: N802 (reprlib looks for this name)
        """As it was typed, in YAML."""
        return "null"


_KINDS = {"integer": "a whole number", "number": "a finite number", "boolean": "true or false", "null": "null"}
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "to below"}
_ALONE = {"maximum": "at most", "exclusiveMaximum": "below"}  # without a lower bound


def allowed(schema: dict[str, Any]) -> str:
    """The values that a pydantic JSON schema allows, in words."""
    if "enum" in schema:
        *others, last = (each if isinstance(each, str) else shown(each) for each in schema["enum"])
        return f"{', '.join(others)} or {last}"
    if "anyOf" in schema:
        return " or ".join(allowed(option) for option in reversed(schema["anyOf"]))  # null first, it is short
    kind = schema.get("type")
    if kind == "string":
        return f"a text of at most {schema['maxLength']} printable characters" if "maxLength" in schema else "a text"
    if kind == "array":
        items = schema.get("prefixItems")
        if items is None and "maxItems" not in schema:
            return "a list"
        count, item = (f"{len(items)}", items[0]) if items else (f"at most {schema['maxItems']}", schema["items"])
        return f"a list of {count}, each {allowed(item)}"
    if kind not in _KINDS or "const" in schema:  # of a user's own section
        return str(schema.get("const", "what its section says"))
    words = _BOUNDS if "minimum" in schema or "exclusiveMinimum" in schema else _ALONE
    bounds = "".join(f" {word} {schema[name]}" for name, word in words.items() if name in schema)
    return _KINDS[kind] + bounds
