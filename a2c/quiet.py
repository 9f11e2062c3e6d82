"""Imports without the start-up messages of TensorFlow's C++ code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def quietly(module: str) -> Any:
    """Import a module that imports TensorFlow, without its C++ start-up messages on stderr."""
    if module in sys.modules:
        return sys.modules[module]
    with _silenced_stderr():
        return import_module(module)


@contextlib.contextmanager
def _silenced_stderr() -> Iterator[None]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
