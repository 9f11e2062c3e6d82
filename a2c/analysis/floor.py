"""The floor of a training loop: the bare emulator, and the network's operations at the speed of matrix products."""

from __future__ import annotations

import time
from math import prod
from statistics import median

import keras
import numpy as np
import tensorflow as tf

from a2c.analysis.timed_loop import wait_for
from a2c.config import Config
from a2c.envs.vector import Simulator
from a2c.execution.machine import stay_on

MATRIX_SIZE = 2048  # large enough for the full rate of the processor
MATRIX_PRODUCTS = 5  # per round


class RandomPlayer:
    """Plays random actions on a bare simulator: no bookkeeping of episodes, no seed after the first."""

    def __init__(self, simulator: Simulator, *, seed: int) -> None:
        self.simulator = simulator
        self.rng = np.random.default_rng(seed)
        b = simulator.num_envs
        simulator.reset(np.ones(b, np.bool_), self.rng.integers(2**31, size=b))

    def play(self, steps: int, core: int | None = None) -> float:
        """Take `steps` steps in each environment, in a thread on `core`; returns agent steps/s over all of them."""
        stay_on(core)
        shape = (steps, self.simulator.num_envs)
        actions = self.rng.integers(self.simulator.num_actions, size=shape, dtype=np.int32)
        start = time.perf_counter()
        for row in actions:
            outcome = self.simulator.step(row)
            ended = outcome.terminated | outcome.truncated
            if ended.any():
                self.simulator.reset(ended, None)
        return actions.size / (time.perf_counter() - start)


def layer_flops(layer: keras.Layer) -> int:
    """Floating-point operations of a layer with a kernel, for one observation.

    A multiplication and an addition count as two. Only matrix products and convolutions are counted.
    """
    return int(2 * prod(layer.kernel.shape) * prod(layer.output.shape[1:-1]))


def flops_per_step(model: keras.Model, config: Config) -> float:
    """Floating-point operations of acting and learning, for one agent step.

    The forward pass runs once for acting, once in each pass of learning and, with bootstrapping, on one more
    observation every T steps. The backward pass runs on the T steps only. It costs twice the forward pass, for the
    gradients of inputs and of kernels; observations need no gradient.
    """
    layers = [layer for layer in model.layers if hasattr(layer, "kernel")]
    forward = sum(map(layer_flops, layers))
    backward = 2 * forward - sum(layer_flops(layer) for layer in layers if layer.input is layers[0].input)
    bootstrap = forward / config.algorithm.rollout_length if config.algorithm.BOOTSTRAPS else 0.0
    return forward + bootstrap + config.algorithm.passes(config.env.num_envs) * (forward + backward)


def matrix_rate(precision: str) -> float:
    """Floating-point operations per second of large matrix products, the median of a few."""
    matrix = tf.ones((MATRIX_SIZE, MATRIX_SIZE), keras.DTypePolicy(precision).compute_dtype)
    seconds = []
    for _ in range(MATRIX_PRODUCTS):
        start = time.perf_counter()
        wait_for(tf.linalg.matmul(matrix, matrix)[0, 0])
        seconds.append(time.perf_counter() - start)
    return 2 * MATRIX_SIZE**3 / median(seconds)
