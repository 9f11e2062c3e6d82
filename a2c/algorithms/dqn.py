"""DQN, deep Q-network: learns the value of every action from a replay, and takes the best one."""

from __future__ import annotations

from typing import Any, cast

import keras
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Batches
from a2c.algorithms.gradient_step import Fit, GradientStep, Metrics, Pool
from a2c.algorithms.losses import huber_loss
from a2c.algorithms.objective import Objective
from a2c.algorithms.off_policy import (
    Transitions,
    check_batch,
    drawn,
    n_step_targets,
    total_gradient_steps,
    transitions,
    transitions_spec,
)
from a2c.algorithms.parts import by_parts
from a2c.algorithms.policy import QPolicy, observations_spec
from a2c.algorithms.returns import moments
from a2c.algorithms.sections import DQNSection
from a2c.config import Config
from a2c.data.replay import Replay, replay_of
from a2c.data.rollout import Rollout
from a2c.execution.compile import Tap
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import parts_of, stream_seed
from a2c.networks.optimizer import build_optimizer


class DQN(Algorithm):
    """Mnih et al. 2015: the loss is Huber's of y - Q(s, a), with y = r + gamma max_a' Q_target(s', a').

    Each rollout is added to the replay; then come `gradient_steps` steps on transitions drawn from it. Epsilon for the
    next rollout is set after each update, and saved, so that a resumed run explores alike. A variant overrides
    `targets`, or `_loss`, whose metric `td_errors` [1, N] gives the priorities of what was drawn.
    """

    policy: QPolicy
    memory: Replay

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section = self.config = cast(DQNSection, config.algorithm)
        self.objective, self.parts = Objective.of(config), parts_of(config)
        check_batch(section.batch_size, self.parts)
        optimizer = build_optimizer(config.optimizer, total_steps=total_gradient_steps(config, section))
        policy = self.policy = self.build_policy(config, space, num_actions)
        self.target = self.build_policy(config, space, num_actions).model  # it becomes a copy of the policy's
        self.memory = replay_of(
            config.env,
            space,
            capacity=section.replay_capacity,
            n_step=section.n_step,
            alpha=section.priority_exponent if section.prioritised else None,
        )
        self.total_updates = config.total_updates
        self.sample_seed = stream_seed(config.seed, "samples")
        policy.epsilon.assign(self._epsilon(0))
        trained = policy.model if section.duelling else keras.Model(policy.model.input, policy.model.outputs[0])
        self.learn = GradientStep(
            self._loss,
            trained.trainable_variables,
            optimizer,
            transitions_spec(observations_spec(policy.model, 1, section.batch_size), section.n_step),
            max_grad_norm=config.optimizer.max_grad_norm,
            mode=config.runtime.mode,
        )
        self.steps = {"transitions": self.learn}
        self.variables = {
            "model": policy.model.variables,
            "optimizer": optimizer.variables,
            "target": self.target.variables,
            "exploration": [policy.epsilon],
        }

    build_policy = staticmethod(QPolicy)

    def gauges(self) -> Metrics:
        """See `Algorithm`."""
        size = tf.constant(float(self.memory.size))
        return {"epsilon": tf.convert_to_tensor(self.policy.epsilon), "replay_size": size}

    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """Transitions drawn from the replay, to which the rollout is added first."""
        self.memory.add(rollout)
        self.policy.epsilon.assign(self._epsilon(updates + 1))
        beta = self.config.importance_exponent
        beta += (1 - beta) * min(1.0, updates / self.total_updates)
        for samples in drawn(self.memory, self.config, seed=self.sample_seed, updates=updates):
            if int(self.learn.optimizer.iterations) % self.config.target_update == 0:  # before the first step too
                for target, variable in zip(self.target.variables, self.policy.model.variables, strict=True):
                    target.assign(variable)
            metrics = yield "transitions", transitions(samples, self.objective, beta=beta)
            if self.config.prioritised:
                self.memory.reprioritise(samples.places, metrics["td_errors"].numpy()[0])

    def _epsilon(self, updates: int) -> float:
        """The share of random actions after `updates` updates: from 1 down to the final one, in a straight line."""
        length = self.config.exploration_fraction * self.total_updates
        done = min(1.0, updates / length) if length else 1.0
        return 1.0 + done * (self.config.final_epsilon - 1.0)

    def _loss(self, batch: Transitions, tap: Tap, pool: Pool) -> Fit:
        q_values = tap("q_values", self._q_values(self.policy.model, tap("observations", batch.observations[0])))
        chosen = tf.gather(q_values, batch.actions[0], batch_dims=1)[None]
        targets = tap("targets", self.targets(batch, tap))
        errors = targets - chosen
        loss = huber_loss(errors, batch.weights)
        sizes = tf.abs(errors)
        parts = {"q_value": tf.reduce_mean(chosen), "td_error": tf.reduce_mean(sizes), "td_errors": sizes}
        return Fit(loss, parts, moments(errors), moments(targets))

    def targets(self, batch: Transitions, tap: Tap) -> tf.Tensor:
        """The targets y [1, N]: the n-step returns, with the target network's value of the observation after them."""
        following = batch.next_observations[0]
        valued = tap("target_q_values", self._q_values(self.target, following))
        choosing = self._q_values(self.policy.model, following) if self.config.double else valued
        best = tf.argmax(choosing, axis=-1, output_type=tf.int32)
        return n_step_targets(batch, tf.stop_gradient(tf.gather(valued, best, batch_dims=1)))

    def _q_values(self, model: keras.Model, observations: tf.Tensor) -> tf.Tensor:
        """Q [N, A], computed in independent parts."""
        return by_parts(lambda part: self.policy.q_values(model, part), observations, self.parts)
