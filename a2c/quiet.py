"""Imports of TensorFlow: without its start-up messages, and in two thirds of the time."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from a2c.types import UserError


def quietly(module: str) -> Any:
    """Import a module that imports TensorFlow, without its C++ start-up messages on stderr.

    Raises:
        UserError: if Keras is set to another backend, or so that TensorFlow cannot be imported.
    """
    if module in sys.modules:
        return sys.modules[module]
    with _silenced_stderr():
        _import_tensorflow()
        return import_module(module)


def fast(module: str) -> Any:
    """`quietly`, in two thirds of the time, for a process that is ours.

    Objects are frozen, Keras cannot draw, and signals end the process at once: call it while nothing is half-written.
    """
    if module in sys.modules:
        return sys.modules[module]
    with _silenced_stderr(), _without_collections(), _ended_by_signals():
        with _hidden("matplotlib", "pandas", "scipy"):  # Keras imports what it finds
            _import_tensorflow()
        return import_module(module)


def _import_tensorflow() -> None:
    """Check first that Keras will be TensorFlow's: with another backend the import fails, or the networks do."""
    if (backend := os.environ.get("KERAS_BACKEND", "tensorflow")) != "tensorflow":
        raise UserError(f"KERAS_BACKEND={backend} is set, and a2c needs TensorFlow's Keras; unset it.")
    try:
        import_module("tensorflow")
    except AssertionError:  # it asserts what the file says
        raise UserError(f"TensorFlow cannot be imported with the settings in {keras_file()}; mend it.") from None


def keras_file() -> Path:
    """The file from which Keras reads its settings."""
    return Path(os.environ.get("KERAS_HOME", "~/.keras"), "keras.json")


@contextlib.contextmanager
def _hidden(*packages: str) -> Iterator[None]:
    """Of these packages, nothing can import those that are not imported yet."""
    hidden = dict.fromkeys(set(packages) - set(sys.modules))
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage is collected, and what is made is not looked at by later collections: modules are never garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGINT and SIGTERM do what they do by default.

    In the import of an extension module, what a handler raises may be lost or crash the process.
    """
    handlers = {}
    with contextlib.suppress(ValueError):  # not in the main thread, the only one in which Python handles signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(signal.getsignal(number)):  # else it is ignored, or does so already
                handlers[number] = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
