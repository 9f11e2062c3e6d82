"""What a user may name to `a2c compare`: algorithms, configurations, or run folders. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from a2c.algorithms.sections import SECTIONS
from a2c.config.sources import read_source
from a2c.extensions import is_extension, wrapper_names

RUNS, ALGORITHMS, CONFIGURATIONS = (f"a comparison of {what}" for what in ("runs", "algorithms", "configurations"))


def kind_of(targets: Sequence[str]) -> str:
    """RUNS if one is a folder, else ALGORITHMS if one is the name of an algorithm, else CONFIGURATIONS."""
    if any(map(_names_folder, targets)):
        return RUNS
    return ALGORITHMS if any(map(is_algorithm, targets)) else CONFIGURATIONS


def is_algorithm(target: str) -> bool:
    """Whether a target that is no run folder means an algorithm's recipe; a user's own, `module:Name`, has one too."""
    return (target in SECTIONS or is_extension(target)) and not Path(target).is_file()


def named_in(target: str) -> list[Any]:
    """The algorithm, the network and the wrappers that a preset or a file names.

    Raises:
        UserError: if there is none of that name, or it cannot be read.
    """
    values = read_source(target, None, None)[1]
    algorithm, model, env = (
        section if isinstance(section := values.get(name), dict) else {} for name in ("algorithm", "model", "env")
    )
    return [algorithm.get("name"), model.get("name"), *wrapper_names(env.get("wrappers"))]


def _names_folder(target: str) -> bool:
    """Whether a target is a folder; one named like an algorithm only if it is a run: a checkout has a folder `a2c`."""
    folder = Path(target)
    return folder.is_dir() and (target not in SECTIONS or (folder / "config.yaml").is_file())
