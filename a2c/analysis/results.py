"""The folder of a comparison or a search: made once, found again by the same command."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from a2c.config import UserError, shown
from a2c.execution.machine import versions
from a2c.reading import read_text
from a2c.run.files import make_folders, write_atomically
from a2c.run.lock import alone_in


def open_folder(folder: Path | None, noun: str, name: str, what: dict[str, Any]) -> Path:
    """Make the folder of some results, or check that it holds them; `<noun>.json` says which.

    Args:
        folder: where it is. Default: runs/<name>-<hash>, so that the same command finds the same folder.
        noun: what the results are called.
        name: what the default begins with.
        what: plain values that decide the results.

    Raises:
        UserError: if it holds others, was begun with other versions, or cannot be made.
    """
    what = json.loads(json.dumps(what))
    digest = hashlib.sha256(json.dumps([what, versions()], sort_keys=True).encode()).hexdigest()[:8]
    folder = folder or Path("runs") / f"{name}-{digest}"
    file = folder / f"{noun}.json"
    if not file.is_file():
        holds_files = folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())
        if holds_files and not file.is_file():  # the same command may have begun it meanwhile
            raise UserError(f"{folder} holds other files; choose another --out.")
        try:
            make_folders(folder)
            with alone_in(folder):
                if not file.is_file():  # the same command may be started twice at once
                    write_atomically(file, json.dumps({"what": what, "versions": versions()}, indent=2) + "\n")
        except OSError as error:
            raise UserError(f"The folder {folder} cannot be made: {error.strerror}; name another with --out.") from None
    begun = _read_json(file)
    if not isinstance(begun, dict):
        raise UserError(f"{file} is damaged; delete {folder}, or choose another --out.")
    if begun.get("what") != what:
        other = difference(begun.get("what"), what)
        raise UserError(f"{folder} holds another {noun}: {other}; choose another --out.")
    if begun.get("versions") != versions():
        raise UserError(f"{folder} was begun with other versions (see its {file.name}); choose another --out.")
    return folder


def difference(old: Any, new: Any, key: str = "") -> str:
    """The first value that differs, by its dotted key; empty if none does."""
    if old == new:
        return ""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        first = next((each for each in (*new, *old) if old.get(each) != new.get(each)), "")
        return difference(old.get(first), new.get(first), f"{key}.{first}".lstrip("."))
    return f"{key} is {shown(old)} there and {shown(new)} here"


def _read_json(file: Path) -> Any:
    """The content of a file; None if it is missing or damaged."""
    try:
        return json.loads(read_text(file))
    except (OSError, ValueError, RecursionError):
        return None
