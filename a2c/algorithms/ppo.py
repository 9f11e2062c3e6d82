"""PPO, proximal policy optimisation: several epochs of minibatches per rollout, near the policy that acted."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import keras
import numpy as np
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Batches
from a2c.algorithms.gradient_step import Fit, GradientStep, Pool
from a2c.algorithms.losses import approximate_kl, clipped_surrogate_loss, clipped_value_loss, entropy, log_prob
from a2c.algorithms.objective import Objective
from a2c.algorithms.on_policy import minibatches, outcomes
from a2c.algorithms.parts import as_rows, by_parts
from a2c.algorithms.policy import ActorCriticPolicy, observations_spec
from a2c.algorithms.returns import gae, moments, normalize
from a2c.algorithms.sections import PPOSection
from a2c.config import Config
from a2c.data.collector import aligned
from a2c.data.rollout import Array, Rollout
from a2c.execution.compile import Compiled, Tap
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import parts_of, stream_seed
from a2c.networks.optimizer import COOLDOWN, build_optimizer

SLOWER = 0.95  # factor by which a learning rate falls, or 1 / it by which it rises, in one update


class Minibatch(NamedTuple):
    """The batch of one PPO gradient step: n rows of each of the B environments, drawn from a whole rollout."""

    observations: Array  # [n, B, *obs]
    actions: Array  # [n, B] int32
    log_probs: Array  # [n, B] float32: of the actions, under the policy that acted
    values: Array  # [n, B] float32: predicted when that policy acted
    advantages: Array  # [n, B] float32
    returns: Array  # [n, B] float32: advantages + values


class PPO(Algorithm):
    """Schulman et al. 2017, arXiv 1707.06347: `num_epochs` epochs on each rollout, of `num_minibatches` minibatches.

    A gradient step minimises the clipped surrogate (eq. 7) + c_v value_loss - c_e entropy (eq. 9). GAE advantages are
    computed once per rollout, from the values stored when it was collected.
    """

    policy: ActorCriticPolicy

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section = self.config = cast(PPOSection, config.algorithm)
        policy = self.policy = self.build_policy(config, space, num_actions, replicas)
        self.objective, self.parts, self.replicas = Objective.of(config), parts_of(config), replicas
        self.shuffle_seed = stream_seed(config.seed, "minibatches")
        self.optimizer_config, self.total_updates = config.optimizer, config.total_updates
        # the rate is set before each update: epochs that end early must not delay its decay
        constant = config.optimizer.model_copy(update={"schedule": "constant"})
        with replicas.scope():
            optimizer = build_optimizer(constant, total_steps=config.total_updates)
            self.clip_range = tf.Variable(section.clip_range, trainable=False)
            self.entropy_coef = tf.Variable(section.entropy_coef, trainable=False)
        mode, rows = config.runtime.mode, (section.rollout_length, config.env.num_envs)
        some = (section.rollout_length // section.num_minibatches, config.env.num_envs)
        observations = observations_spec(policy.model, *some)
        self.learn = GradientStep(
            self._loss,
            policy.model.trainable_variables,
            optimizer,
            minibatch_spec(observations),
            max_grad_norm=config.optimizer.max_grad_norm,
            mode=mode,
            replicas=replicas,
        )
        floats, bootstrap = tf.TensorSpec(rows, tf.float32), tf.TensorSpec(rows[1:], tf.float32)
        logits = tf.TensorSpec((*rows, policy.model.output_shape[0][-1]), tf.float32)
        actions, ends = tf.TensorSpec(rows, tf.int32), tf.TensorSpec(rows, tf.bool)
        self._targets = Compiled(
            self._log_probs_and_targets, mode, logits, actions, floats, floats, ends, floats, floats, bootstrap
        )
        self._observations = aligned(tuple(observations.shape), np.dtype(observations.dtype.as_numpy_dtype))
        self.steps = {"minibatch": self.learn}
        self.traced = (policy.compiled["value"], self._targets)
        self.variables = {"model": policy.model.variables, "optimizer": optimizer.variables}
        if section.target_clip_fraction is not None:
            self.rate_factor = keras.Variable(1.0, trainable=False, dtype="float32", name="rate_factor")
            self.variables["rate_factor"] = [self.rate_factor]

    build_policy = staticmethod(partial(ActorCriticPolicy, values=True))

    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """The minibatches of all epochs; stops early when approx_kl is above `target_kl`.

        Then the learning rate follows `target_clip_fraction`.
        """
        self._set_schedule(updates)
        found, clipped = self._whole(rollout), []
        for rows in minibatches(
            rollout.actions.shape,
            self.config.num_minibatches,
            epochs=self.config.num_epochs,
            seed=self.shuffle_seed,
            updates=updates,
            replicas=self.replicas,
        ):
            metrics = yield "minibatch", self._gathered(found, rows)
            clipped.append(metrics["clip_fraction"])
            if self.config.target_kl is not None and float(metrics["approx_kl"]) > self.config.target_kl:
                break
        if self.config.target_clip_fraction is not None:
            factor = SLOWER if np.mean(clipped) > self.config.target_clip_fraction else 1 / SLOWER
            self.rate_factor.assign(min(float(self.rate_factor) * factor, 1.0))

    def _set_schedule(self, updates: int) -> None:
        config, left = self.config, 1 - updates / self.total_updates  # 1 at the start, 0 after the last update

        def now(first: float, kind: str) -> float:
            return first * {"constant": 1.0, "linear": left, "cooldown": min(left / COOLDOWN, 1.0)}[kind]

        rate = now(self.optimizer_config.learning_rate, self.optimizer_config.schedule)
        if config.target_clip_fraction is not None:
            rate *= float(self.rate_factor)
        self.learn.optimizer.learning_rate.assign(rate)
        self.clip_range.assign(now(config.clip_range, config.clip_schedule))
        self.entropy_coef.assign(now(config.entropy_coef, config.entropy_schedule))

    def _whole(self, rollout: Rollout) -> Minibatch:
        """All rows of a rollout, from which the minibatches are taken."""
        found = outcomes(rollout, self.policy.value, self.objective)
        values, bootstrap = rollout.said["values"], self.policy.value(rollout.observations[-1])
        targets = self._targets(rollout.said["logits"], rollout.actions, *found, values, bootstrap)
        log_probs, advantages, returns = (x.numpy() for x in targets)
        return Minibatch(rollout.observations[:-1], rollout.actions, log_probs, values, advantages, returns)

    def _log_probs_and_targets(
        self, logits: tf.Tensor, actions: tf.Tensor, *estimate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        advantages, returns = gae(*estimate, gae_lambda=self.config.gae_lambda)
        return log_prob(logits, actions), advantages, returns

    def _gathered(self, whole: Minibatch, rows: np.ndarray) -> Minibatch:
        """The given rows of each environment; the observations go, uncast, into an array that is reused."""
        places = rows * rows.shape[1] + np.arange(rows.shape[1])  # in [T x B]
        flat = [field.reshape(-1, *field.shape[2:]) for field in whole]
        observations = np.take(flat[0], places, axis=0, out=self._observations, mode="clip")  # the fastest mode
        return Minibatch(observations, *(field[places] for field in flat[1:]))

    def _loss(self, batch: Minibatch, tap: Tap, pool: Pool) -> Fit:
        logits, values = self._forward(batch.observations, tap)
        advantages = tap("advantages", batch.advantages)
        if self.config.normalize_advantages:
            advantages = tap("normalized_advantages", normalize(advantages, pool(moments(advantages))))
        log_probs = tap("log_probs", log_prob(logits, batch.actions))
        clip_range = tf.convert_to_tensor(self.clip_range)
        policy_loss, clip_fraction = clipped_surrogate_loss(log_probs, batch.log_probs, advantages, clip_range)
        parts = {
            "policy_loss": tap("policy_loss", policy_loss),
            "value_loss": tap(
                "value_loss", clipped_value_loss(values, batch.values, batch.returns, self.config.value_clip_range)
            ),
            "entropy": tap("entropy", entropy(logits)),
        }
        loss = parts["policy_loss"] + self.config.value_loss_coef * parts["value_loss"]
        loss -= tf.convert_to_tensor(self.entropy_coef) * parts["entropy"]
        parts |= {"approx_kl": approximate_kl(log_probs, batch.log_probs), "clip_fraction": clip_fraction}
        return Fit(loss, parts, moments(batch.returns - values), moments(batch.returns))

    def _forward(self, observations: tf.Tensor, tap: Tap) -> tuple[tf.Tensor, tf.Tensor]:
        """Logits [n, B, A] and values [n, B], computed in independent parts."""
        n, b = observations.shape[:2]
        logits, values = by_parts(self.policy.model, tap("observations", as_rows(observations)), self.parts)
        return tf.reshape(tap("logits", logits), [n, b, -1]), tf.reshape(tap("values", values), [n, b])


def minibatch_spec(observations: tf.TensorSpec) -> Minibatch:
    """The fixed signature of a gradient step on observations [n, B, *obs], as TensorSpecs."""
    rows = observations.shape[:2]
    floats = tf.TensorSpec(rows, tf.float32)
    return Minibatch(
        observations=observations,
        actions=tf.TensorSpec(rows, tf.int32),
        log_probs=floats,
        values=floats,
        advantages=floats,
        returns=floats,
    )
