"""A2C, advantage actor-critic: one synchronous update per rollout, which is then discarded."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Batches
from a2c.algorithms.gradient_step import Fit, GradientStep, Pool
from a2c.algorithms.losses import LossParts, a2c_loss
from a2c.algorithms.objective import Objective
from a2c.algorithms.on_policy import outcomes
from a2c.algorithms.parts import as_rows, in_parts
from a2c.algorithms.policy import ActorCriticPolicy, observations_spec
from a2c.algorithms.returns import gae, moments, normalize
from a2c.algorithms.sections import A2CSection, ActorCriticSection
from a2c.config import Config
from a2c.data.rollout import Array, Rollout
from a2c.execution.compile import Tap
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import parts_of
from a2c.networks.optimizer import build_optimizer


class Trajectory(NamedTuple):
    """The batch of one A2C update; T = rollout_length, B = num_envs."""

    observations: Array  # [T, B, *obs]
    actions: Array  # [T, B] int32
    rewards: Array  # [T, B] float32: see `Outcomes` for this and the next three
    discounts: Array
    ends: Array
    final_values: Array
    bootstrap_observations: Array  # [1, B, *obs]: those after row T-1


class A2C(Algorithm):
    """Mnih et al. 2016, arXiv 1602.01783, made synchronous as in OpenAI's baselines (2017).

    One gradient step per rollout on policy_loss + c_v value_loss - c_e entropy, with GAE advantages (lambda = 1:
    n-step returns). The forward pass is repeated on the stored observations: no activations are kept between steps.
    """

    policy: ActorCriticPolicy
    config: ActorCriticSection

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section = self.config = cast(A2CSection, config.algorithm)
        policy = self.policy = self.build_policy(config, space, num_actions, replicas)
        self.objective, self.parts = Objective.of(config), parts_of(config)
        with replicas.scope():
            optimizer = build_optimizer(config.optimizer, total_steps=config.total_updates)
        self.learn = GradientStep(
            self._loss,
            policy.model.trainable_variables,
            optimizer,
            trajectory_spec(policy, section.rollout_length, config.env.num_envs),
            max_grad_norm=config.optimizer.max_grad_norm,
            mode=config.runtime.mode,
            replicas=replicas,
        )
        self.steps = {"update": self.learn}
        self.variables = {"model": policy.model.variables, "optimizer": optimizer.variables}

    build_policy = staticmethod(ActorCriticPolicy)

    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """One gradient step on the whole rollout."""
        yield "update", self.trajectory(rollout)

    def trajectory(self, rollout: Rollout) -> Trajectory:
        """The batch of an update, derived from a rollout."""
        found = outcomes(rollout, self.policy.value, self.objective)
        return Trajectory(
            observations=rollout.observations[:-1],
            actions=rollout.actions,
            **found._asdict(),
            bootstrap_observations=rollout.observations[-1:],
        )

    def _loss(self, trajectory: Trajectory, tap: Tap, pool: Pool) -> Fit:
        logits, values, bootstrap_value = self._forward(trajectory, tap)
        targets = gae(
            trajectory.rewards,
            trajectory.discounts,
            trajectory.ends,
            trajectory.final_values,
            values,
            bootstrap_value,
            gae_lambda=self.config.gae_lambda,
        )
        returns, advantages = tap("returns", targets.returns), tap("advantages", targets.advantages)
        if self.config.normalize_advantages:
            advantages = tap("normalized_advantages", normalize(advantages, pool(moments(advantages))))
        loss, parts = a2c_loss(
            logits,
            values,
            trajectory.actions,
            advantages,
            returns,
            value_loss_coef=self.config.value_loss_coef,
            entropy_coef=self.config.entropy_coef,
        )
        parts = LossParts(*(tap(name, part) for name, part in parts._asdict().items()))
        return Fit(loss, parts._asdict(), moments(returns - values), moments(returns))

    def _forward(self, trajectory: Trajectory, tap: Tap) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One forward pass over the T x B stored observations, and one over the B bootstrap observations.

        They are separate because no gradient flows through the second: in one pass it would be computed as zeros.

        Returns logits [T, B, A], values [T, B] and bootstrap_value [B].
        """
        t, b = trajectory.actions.shape
        stored_parts = in_parts(tap("observations", as_rows(trajectory.observations)), self.parts)
        after_parts = in_parts(as_rows(trajectory.bootstrap_observations), self.parts)
        parts = [self._pass(*part) for part in zip(stored_parts, after_parts, strict=True)]
        logits, values, bootstrap_value = (tf.concat(each, axis=0) for each in zip(*parts, strict=True))
        logits, values = tap("logits", logits), tap("values", values)
        logits, values = tf.reshape(logits, [t, b, -1]), tf.reshape(values, [t, b])
        return logits, values, tap("bootstrap_value", bootstrap_value)

    def _pass(self, observations: tf.Tensor, bootstrap_observations: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Logits [n, A] and values [n] of one part, then its bootstrap values [b].

        The parts run independently, and the tape adds up their gradients. The order within a part is fixed: otherwise
        one core may compute the bootstrap values of all parts.
        """
        outputs = self.policy.model(observations)
        with tf.control_dependencies(outputs):
            _, bootstrap_values = self.policy.model(bootstrap_observations)
        return *outputs, bootstrap_values


def trajectory_spec(policy: ActorCriticPolicy, rollout_length: int, num_envs: int) -> Trajectory:
    """The fixed signature of an update, as TensorSpecs."""
    rows = (rollout_length, num_envs)
    return Trajectory(
        observations=observations_spec(policy.model, *rows),
        actions=tf.TensorSpec(rows, tf.int32),
        rewards=tf.TensorSpec(rows, tf.float32),
        discounts=tf.TensorSpec(rows, tf.float32),
        ends=tf.TensorSpec(rows, tf.bool),
        final_values=tf.TensorSpec(rows, tf.float32),
        bootstrap_observations=observations_spec(policy.model, 1, num_envs),
    )
