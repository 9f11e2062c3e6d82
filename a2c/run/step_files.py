"""The names of checkpoint files: `step-000004000768.npz` after so many agent steps, and that of the best one."""

from __future__ import annotations

import re
from pathlib import Path

from a2c.reading import is_regular

BEST = "best.npz"
_STEP_FILE = re.compile(r"step-\d{12,}\.npz")


def step_file(folder: Path, env_steps: int) -> Path:
    """The checkpoint of a folder that is written after `env_steps` agent steps."""
    return folder / f"step-{env_steps:012d}.npz"


def steps_of(file: Path) -> int:
    """The agent steps after which a checkpoint of that name is written."""
    return int(file.stem.removeprefix("step-"))


def step_files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return [file for file in step_names(folder) if is_regular(file)]


def step_names(folder: Path) -> list[Path]:
    """All paths that are named like a checkpoint, even if they are not regular files, oldest first."""
    return sorted(file for file in folder.glob("step-*.npz") if _STEP_FILE.fullmatch(file.name))
