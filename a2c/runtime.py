"""How the maths is executed: numerics, threads, precision, and the seeds of every random stream."""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow as tf

from a2c.config import RuntimeConfig, UserError

# Grappler passes that change the last bits of a graph's results against eager execution, by precision
INEXACT_PASSES = {
    "float32": ("arithmetic_optimization", "constant_folding", "remapping"),  # remapping: it fuses tanh
    "mixed_bfloat16": ("arithmetic_optimization", "constant_folding", "remapping", "layout_optimizer"),
}


def setup(config: RuntimeConfig) -> None:
    """Apply threads and numerics to this process. Call it before anything is traced.

    Raises:
        UserError: where TensorFlow has started with another number of threads already.
    """
    # the setter refuses even the number that is set, once TensorFlow has started
    if config.threads != tf.config.threading.get_intra_op_parallelism_threads():
        try:
            tf.config.threading.set_intra_op_parallelism_threads(config.threads)
        except RuntimeError:
            raise UserError(
                f"runtime.threads={config.threads} comes too late: TensorFlow runs here already; use a new process."
            ) from None
    exact = is_exact(config)
    switched_off = INEXACT_PASSES[config.precision] if exact else ()
    passes = {name for group in INEXACT_PASSES.values() for name in group}
    tf.config.optimizer.set_experimental_options({name: name not in switched_off for name in passes})


def is_exact(config: RuntimeConfig) -> bool:
    """Whether eager and graph are to give the same bits."""
    return config.numerics == "exact" or (config.numerics == "auto" and config.mode != "xla")


def stream_seed(seed: int, stream: str) -> int:
    """A seed for one named random stream of a run: hashed, so neighbouring run seeds share nothing."""
    sequence = np.random.SeedSequence((seed, zlib.crc32(stream.encode())))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
