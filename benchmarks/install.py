"""The peers' virtual environments, made once, in ${XDG_CACHE_HOME:-~/.cache}/a2c-benchmarks/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from a2c.config import UserError

HERE = Path(__file__).resolve().parent
CPU_TORCH = HERE / "requirements-torch-cpu.txt"


class LeftOutError(Exception):
    """Why a contestant cannot take part: a sentence."""


def virtual_environment(peer: str) -> Path:
    """The Python of a peer's environment, which is made anew unless it is as its requirements say.

    Raises:
        LeftOutError: if a package is not available for this Python.
        UserError: if there is no network.
    """
    requirements = HERE / f"requirements-{peer}.txt"
    wanted = CPU_TORCH.read_text(encoding="utf-8") + requirements.read_text(encoding="utf-8") + sys.version
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "a2c-benchmarks" / peer
    python, finished = folder / "bin" / "python", folder / "finished"
    if not finished.exists() or finished.read_text(encoding="utf-8") != wanted:
        print(f"{peer}: installing into {folder}", file=sys.stderr, flush=True)
        pip: list[str | Path] = [python, "-m", "pip", "install", "--disable-pip-version-check"]
        _run(peer, [sys.executable, "-m", "venv", "--clear", folder])
        _run(peer, [*pip, "--no-deps", "-r", CPU_TORCH])
        _run(peer, [*pip, "-r", requirements])
        finished.write_text(wanted, encoding="utf-8")
    return python


def last_error(log: str) -> str:
    """The last line that reads `SomeError: why`, as Python's tracebacks and pip's errors do."""
    errors: list[str] = re.findall(r"^[\w.]+: .+", log, re.MULTILINE)
    return errors[-1] if errors else "no word"


def _run(peer: str, command: list[str | Path]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return
    # an index that cannot be reached and a package of which no version is found: one alone can have other causes
    if "Retrying" in done.stdout and "from versions: none" in done.stdout:
        raise UserError("The peers cannot be installed without a network; go online, or name only a2c contestants.")
    raise LeftOutError(f"{peer} cannot be installed for this Python: {last_error(done.stdout)}")
