"""How the maths is executed: numerics, threads, precision, and the seeds of every random stream."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import tensorflow as tf

from a2c.config import RuntimeConfig, UserError

# Grappler passes that change the last bits of a graph's results against eager execution. The networks need the first
# two off (the second for tanh, and for everything in bfloat16); the third is for a loss that divides by a constant.
INEXACT_PASSES = ("arithmetic_optimization", "remapping", "constant_folding")


def setup(config: RuntimeConfig, *, warn: Callable[[str], None] | None = None) -> None:
    """Apply threads and numerics to this process. Call it before anything is traced.

    Args:
        config: what to apply.
        warn: where given, it is told of what comes too late, and the rest is applied.

    Raises:
        UserError: where `exact` was asked for on a GPU, or TensorFlow has started with another number of threads.
    """
    if config.numerics == "exact" and _sees_gpu():
        raise UserError(
            "runtime.numerics=exact holds on CPUs only, since the order in which GPU kernels add was never measured; "
            "use numerics=fast, or hide the GPU with CUDA_VISIBLE_DEVICES= in the environment."
        )
    # the setter refuses even the number that is set, once TensorFlow has started
    if config.threads != tf.config.threading.get_intra_op_parallelism_threads():
        try:
            tf.config.threading.set_intra_op_parallelism_threads(config.threads)
        except RuntimeError:
            late = f"runtime.threads={config.threads} comes too late: TensorFlow runs here already"
            if warn is None:
                raise UserError(f"{late}; use a new process.") from None
            warn(f"{late}; it goes on with the threads there are, and the last bits may be others.")
    with suppress(RuntimeError):  # too late only costs time, the bits are the same
        # one operation after the other, each on all threads: beside each other they get in each other's way
        tf.config.threading.set_inter_op_parallelism_threads(1)
    rewrite = not is_exact(config)
    tf.config.optimizer.set_experimental_options(dict.fromkeys(INEXACT_PASSES, rewrite))


def is_exact(config: RuntimeConfig) -> bool:
    """Whether eager and graph give the same bits in this process; `auto` means wherever that is possible."""
    if config.numerics == "auto":
        return config.mode != "xla" and not _sees_gpu()
    return config.numerics == "exact"


def _sees_gpu() -> bool:
    return bool(tf.config.get_visible_devices("GPU"))


def stream_seed(seed: int, stream: str) -> int:
    """A seed for one named random stream of a run: hashed, so neighbouring run seeds share nothing."""
    sequence = np.random.SeedSequence((seed, zlib.crc32(stream.encode())))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
