"""a2c: an exact, fast and honest trainer of A2C and other agents on Atari games."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from a2c.execution.machine import is_x86
from a2c.version import __version__

if TYPE_CHECKING:
    from a2c.config import Config, UserError, load_config
    from a2c.evaluation.evaluate import EvalResult, evaluate
    from a2c.extensions import trust
    from a2c.run.callbacks import Callback
    from a2c.run.training import TrainSummary, train

__all__ = [
    "Callback",
    "Config",
    "EvalResult",
    "TrainSummary",
    "UserError",
    "__version__",
    "evaluate",
    "load_config",
    "train",
    "trust",
]

if is_x86():
    # left to itself TensorFlow uses oneDNN only on processors with AVX-512, and updates take twice as long on others
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # whatever ~/.keras/keras.json says

_LAZY = {
    "Config": "config",
    "UserError": "config",
    "load_config": "config",
    "trust": "extensions",
    "Callback": "run.callbacks",
    "train": "run.training",
    "TrainSummary": "run.training",
    "evaluate": "evaluation.evaluate",
    "EvalResult": "evaluation.evaluate",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use (PEP 562): some need TensorFlow, and Ctrl-C is quiet only from `__main__` on."""
    if name not in _LAZY:
        raise AttributeError(f"module 'a2c' has no attribute {name!r}")
    from a2c.quiet import quietly

    return getattr(quietly(f"a2c.{_LAZY[name]}"), name)
