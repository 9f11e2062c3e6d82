"""What algorithms share that learn from a replay: the batch of a gradient step, and when and what is drawn for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from a2c.algorithms.objective import Objective, terms
from a2c.algorithms.returns import n_step_returns
from a2c.algorithms.sections import ReplaySection
from a2c.config import Config, UserError
from a2c.data.replay import Replay, Samples
from a2c.data.rollout import Array
from a2c.execution.runtime import generator


class Transitions(NamedTuple):
    """The batch of one gradient step: N transitions, each with the n steps that begin with it."""

    observations: Array  # [1, N, *obs]
    actions: Array  # [1, N] int32
    rewards: Array  # [n, N] float32, as the loss sees them
    discounts: Array  # [n, N] float32
    ends: Array  # [n, N] bool: nothing after this row counts
    next_observations: Array  # [1, N, *obs]: after n steps or at a time limit; not to be used after game over
    weights: Array  # [1, N] float32: of each transition in the loss


def transitions(samples: Samples, objective: Objective, *, beta: float = 0.0) -> Transitions:
    """What is learned from samples.

    Args:
        samples: from a replay.
        objective: of the policy.
        beta: exponent of the weights (1 / N P)^beta, over the largest (Schaul et al. 2016, arXiv 1511.05952, 3.4).
    """
    found = terms(samples.rewards, samples.terminated, samples.truncated, samples.life_lost, objective)
    weights = (samples.probabilities.min() / samples.probabilities) ** beta
    return Transitions(
        samples.observations[None],
        samples.actions[None],
        *found,
        samples.next_observations[None],
        weights.astype(np.float32)[None],
    )


def n_step_targets(batch: Transitions, values: tf.Tensor) -> tf.Tensor:
    """The n-step returns [1, N, *K] of the transitions, with `values` [N, *K] of the observations after them.

    K is empty if each transition has one value, and has the number of atoms or quantiles if it has a distribution.
    """
    per_transition = values.shape[1:].num_elements()
    rows = (batch.rewards, batch.discounts, batch.ends)
    rewards, discounts, ends = (tf.repeat(each, per_transition, axis=1) for each in rows)
    flat = tf.reshape(values, [-1])
    final_values = tf.repeat(flat[None], batch.rewards.shape[0], axis=0)
    return tf.reshape(n_step_returns(rewards, discounts, ends, final_values, flat)[0], [1, *values.shape])


def transitions_spec(observations: tf.TensorSpec, n_step: int) -> Transitions:
    """The fixed signature of a gradient step on observations [1, N, *obs], as TensorSpecs."""
    one, all_steps = (1, observations.shape[1]), (n_step, observations.shape[1])
    return Transitions(
        observations=observations,
        actions=tf.TensorSpec(one, tf.int32),
        rewards=tf.TensorSpec(all_steps, tf.float32),
        discounts=tf.TensorSpec(all_steps, tf.float32),
        ends=tf.TensorSpec(all_steps, tf.bool),
        next_observations=observations,
        weights=tf.TensorSpec(one, tf.float32),
    )


def drawn(replay: Replay, config: ReplaySection, *, seed: int, updates: int) -> Iterator[Samples]:
    """The samples of each gradient step of an update; none while fewer than `learning_starts` were collected.

    Args:
        replay: to draw from, with the rollout of this update.
        config: the algorithm's section.
        seed: in [0, 2**64).
        updates: number of earlier updates.
    """
    if replay.size > 0 and replay.total * replay.num_envs >= config.learning_starts:
        for step in range(config.gradient_steps):
            yield replay.sample(config.batch_size, generator(seed, updates, step))


def total_gradient_steps(config: Config, section: ReplaySection) -> int:
    """The gradient steps of a whole run.

    Raises:
        UserError: if there are none, because the run is too short.
    """
    filled = -(-section.learning_starts // config.env_steps_per_update)
    first = max(1, filled, -(-section.n_step // section.rollout_length))  # the number of the update that learns first
    learning = config.total_updates - first + 1
    if learning < 1:
        raise UserError(
            f"total_env_steps={config.total_env_steps} is too short to learn anything: {section.name} collects "
            f"algorithm.learning_starts={section.learning_starts} transitions first, each of "
            f"algorithm.n_step={section.n_step} steps; give more steps, or set less of these."
        )
    return learning * section.gradient_steps


def check_batch(batch_size: int, parts: int) -> None:
    """Check that a batch can be cut into equal parts.

    Raises:
        UserError: if not.
    """
    if batch_size % parts:
        raise UserError(
            f"algorithm.batch_size={batch_size} cannot be cut into {parts} parts, one a core; give a multiple of it, "
            "or set runtime.threads=1."
        )
