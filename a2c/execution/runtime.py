"""Numerics, threads and parts of a run, and the seeds of its random streams."""

from __future__ import annotations

import faulthandler
import zlib
from collections.abc import Callable
from contextlib import suppress

import keras
import numpy as np
import tensorflow as tf

from a2c.config import Config, RuntimeConfig, UserError
from a2c.envs import is_native
from a2c.execution.machine import allowed_cores, onednn_is_off, processor, processor_features
from a2c.messages import counted
from a2c.quiet import keras_file

# Grappler passes that change the last bits of a graph's results compared with eager execution. The networks need the
# first two off (the second for tanh, and for everything in bfloat16), losses that divide by a constant the third.
INEXACT_PASSES = ("arithmetic_optimization", "remapping", "constant_folding")

FEWEST_ENVS = 4  # per part: with 4 each on two cores `pong` makes 1.4 to 1.9 times the steps of one part, `atari` 1.02


def setup(config: RuntimeConfig, *, parts: int = 1, warn: Callable[[str], None] | None = None) -> None:
    """Apply threads and numerics to this process. Call it in the main thread, before anything is traced.

    Args:
        config: the settings to apply.
        parts: of the run, see `parts_of`.
        warn: if given, called with a sentence if threads can no longer be set, instead of an error.

    Raises:
        UserError: if numerics is `exact` on a GPU, Keras has other settings than `a2c` needs, or TensorFlow has started
            with another number of threads than configured (0 allows any number).
    """
    _give_signals_a_stack()
    if faults := keras_faults():
        raise UserError(f"Keras cannot be used as it is set: {faults[0]}; mend {keras_file()}.")
    if config.numerics == "exact" and sees_gpu():
        raise UserError(
            "runtime.numerics=exact holds on CPUs only, since the order in which GPU kernels add was never measured; "
            "use numerics=fast, or hide the GPU with CUDA_VISIBLE_DEVICES= in the environment."
        )
    # once TensorFlow has started, the setter fails even for the current number
    threads = config.threads if parts == 1 else 1
    if threads != tf.config.threading.get_intra_op_parallelism_threads():
        try:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        except RuntimeError:
            there = tf.config.threading.get_intra_op_parallelism_threads()
            late = (
                f"runtime.threads={config.threads} comes too late: TensorFlow runs here already, with "
                f"{_threads(there)} for an operation, and this run has {_threads(threads)}"
            )
            if warn is None and config.threads:
                raise UserError(f"{late}; use a new process.") from None
            if warn is not None:
                warn(f"{late}: the last bits may differ; if they matter, give this run a command of its own.")
    with suppress(RuntimeError):  # too late only costs time, the bits are the same
        # one operation at a time in each part: more would compete for the same threads
        tf.config.threading.set_inter_op_parallelism_threads(parts)
    rewrite = not is_exact(config)
    tf.config.optimizer.set_experimental_options(dict.fromkeys(INEXACT_PASSES, rewrite))


def _give_signals_a_stack() -> None:
    """Let signals that come to this thread be handled on a stack of their own, as faulthandler does.

    oneDNN's matrix products move the stack pointer to the heap: what the system stores there for a handler overwrites
    other data, and the process aborts ("corrupted size vs. prev_size").
    """
    if not faulthandler.is_enabled():
        with suppress(ValueError):  # standard error is closed
            faulthandler.enable(2)


def _threads(number: int) -> str:
    return counted(number, "thread") if number else "as many threads as cores"


def parts_of(config: Config) -> int:
    """Number of parts that the environments and every batch of a run are split into, one core each: 1 = not split.

    One core is faster at a small operation than two that share it, and the emulators of one part run while another
    part acts. So there are as many parts as threads if each gets at least `FEWEST_ENVS` native Atari environments, the
    same number each; other environments run in Python, which does one thing at a time. The bits of a run depend on the
    number. It is 1 if `runtime.threads` is 0 and the process has already used TensorFlow with several threads. An
    algorithm may ask for another number (`AlgorithmSection.groups`).
    """
    asked = config.algorithm.groups(config.env.num_envs, config.runtime.threads or allowed_cores())
    if asked is not None:
        return asked
    threads = config.runtime.threads or (allowed_cores() if _operations_can_have_one_thread() else 1)
    share, rest = divmod(config.env.num_envs, threads)
    is_one_device = config.runtime.strategy == "none" and config.runtime.mode != "xla" and not sees_gpu()
    has_emulators = is_native(config.env) and config.env.threads in (0, threads)
    return threads if is_one_device and has_emulators and share >= FEWEST_ENVS and rest == 0 else 1


def machine(parts: int) -> str:
    """A description of what, besides versions, determines the last bits of a run with `parts` parts."""
    features = zlib.crc32(" ".join(sorted(processor_features())).encode())  # many processors have the same name
    threads = parts if parts > 1 else tf.config.threading.get_intra_op_parallelism_threads() or allowed_cores()
    words = [f"{processor()} (features {features:08x})", f"threads {threads}", f"parts {parts}"]
    return ", ".join([*words, *["oneDNN off"] * onednn_is_off(), *["GPU"] * sees_gpu()])


def _operations_can_have_one_thread() -> bool:
    there = tf.config.threading.get_intra_op_parallelism_threads()
    try:  # TensorFlow does not say whether it has started
        tf.config.threading.set_intra_op_parallelism_threads(there + 1)
        tf.config.threading.set_intra_op_parallelism_threads(there)
    except RuntimeError:
        return bool(there == 1)
    return True


def keras_faults() -> list[str]:
    """The user's settings of Keras with which `a2c` cannot train, each as half a sentence."""
    settings = (
        ("backend", keras.backend.backend(), "tensorflow"),
        ("image_data_format", keras.config.image_data_format(), "channels_last"),
        ("floatx", keras.config.floatx(), "float32"),
    )
    return [f"its {name} is {found}, and a2c needs {wanted}" for name, found, wanted in settings if found != wanted]


def is_exact(config: RuntimeConfig) -> bool:
    """Whether eager and graph execution give the same bits in this process; `auto`: if that is possible."""
    if config.numerics == "auto":
        return config.mode != "xla" and not sees_gpu()
    return config.numerics == "exact"


def graph_rewrites() -> bytes:
    """The Grappler passes that are on now, as a serialized ConfigProto, for an operation that calls a trace."""
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    for name, on in tf.config.optimizer.get_experimental_options().items():
        if name.startswith("disable_"):
            setattr(options, name, on)
        elif isinstance(on, bool):
            setattr(options, name, options.ON if on else options.OFF)
    return config.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def sees_gpu() -> bool:
    """Whether TensorFlow would put operations on a GPU."""
    return bool(tf.config.get_visible_devices("GPU"))


def stream_seed(seed: int, stream: str) -> int:
    """A seed for one named random stream of a run: hashed, so neighbouring run seeds share nothing."""
    sequence = np.random.SeedSequence((seed, zlib.crc32(stream.encode())))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def generator(seed: int, updates: int, number: int) -> np.random.Generator:
    """Random numbers of an update: a function of the seed, the earlier updates, and a number within the update."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, updates, number]))
