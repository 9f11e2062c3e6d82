"""TRPO, trust region policy optimisation: a natural gradient step of the policy, then a fit of the value function."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import keras
import numpy as np
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Batches
from a2c.algorithms.gradient_step import Fit, GradientStep, Pool
from a2c.algorithms.losses import value_loss
from a2c.algorithms.natural_gradient import NaturalGradientStep, PolicyBatch
from a2c.algorithms.objective import Objective
from a2c.algorithms.on_policy import minibatches, outcomes
from a2c.algorithms.parts import as_rows, by_parts
from a2c.algorithms.policy import ActorCriticPolicy, observations_spec
from a2c.algorithms.returns import gae, moments, normalize
from a2c.algorithms.sections import TRPOSection
from a2c.algorithms.trust_region import TrustRegion
from a2c.config import Config, UserError
from a2c.data.rollout import Array, Rollout
from a2c.execution.compile import Compiled, Tap
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import parts_of, stream_seed
from a2c.networks.optimizer import build_optimizer


class ValueBatch(NamedTuple):
    """The batch of one gradient step of the value function: n rows of each environment, drawn from a whole rollout."""

    observations: Array  # [n, B, *obs]
    returns: Array  # [n, B] float32


class TRPO(Algorithm):
    """Schulman et al. 2015, arXiv 1502.05477: each policy maximises the surrogate within max_kl of the one before.

    Policy and value function share no weights, so each step trains only its own. GAE advantages (Schulman et al. 2016,
    arXiv 1506.02438) use the values stored when the rollout was collected. The value function is fitted last, by an
    optimizer, in `value_epochs` epochs of `value_minibatches` minibatches.
    """

    policy: ActorCriticPolicy

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section = self.config = cast(TRPOSection, config.algorithm)
        policy = self.policy = self.build_policy(config, space, num_actions, replicas)
        self.objective, self.parts = Objective.of(config), parts_of(config)
        self.shuffle_seed = stream_seed(config.seed, "minibatches")
        fits = section.value_epochs * section.value_minibatches  # optimizer steps per update
        optimizer = build_optimizer(config.optimizer, total_steps=config.total_updates * fits)
        mode, num_envs = config.runtime.mode, config.env.num_envs
        actor, self.critic = (keras.Model(policy.model.input, output) for output in policy.model.outputs)
        _check_apart(actor, self.critic)
        rows = (section.rollout_length, num_envs)
        some = (section.rollout_length // section.value_minibatches, num_envs)
        floats, ends = tf.TensorSpec(rows, tf.float32), tf.TensorSpec(rows, tf.bool)
        bootstrap_values = tf.TensorSpec((num_envs,), tf.float32)
        self._targets = Compiled(self._gae, mode, floats, floats, ends, floats, floats, bootstrap_values)
        move = NaturalGradientStep(
            actor,
            PolicyBatch(observations_spec(actor, *rows), tf.TensorSpec(rows, tf.int32), floats),
            TrustRegion(**{name: getattr(section, name) for name in TrustRegion._fields}),
            mode=mode,
            parts=self.parts,
        )
        fit = GradientStep(
            self._value_loss,
            self.critic.trainable_variables,
            optimizer,
            ValueBatch(observations_spec(self.critic, *some), tf.TensorSpec(some, tf.float32)),
            max_grad_norm=config.optimizer.max_grad_norm,
            mode=mode,
        )
        self.steps = {"policy": move, "value": fit}
        self.traced = (policy.compiled["value"], self._targets)
        self.variables = {"model": policy.model.variables, "optimizer": optimizer.variables}

    build_policy = staticmethod(partial(ActorCriticPolicy, values=True))

    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """The whole rollout for the policy, then the minibatches for the value function."""
        found = outcomes(rollout, self.policy.value, self.objective)
        bootstrap_values = self.policy.value(rollout.observations[-1])
        advantages, returns = (x.numpy() for x in self._targets(*found, rollout.said["values"], bootstrap_values))
        observations = rollout.observations[:-1]
        yield "policy", PolicyBatch(observations, rollout.actions, advantages)
        columns = np.arange(observations.shape[1])
        for rows in minibatches(
            returns.shape,
            self.config.value_minibatches,
            epochs=self.config.value_epochs,
            seed=self.shuffle_seed,
            updates=updates,
        ):
            yield "value", ValueBatch(observations[rows, columns], returns[rows, columns])

    def _gae(self, *estimate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Advantages for the policy and returns for the value function; both [T, B]."""
        advantages, returns = gae(*estimate, gae_lambda=self.config.gae_lambda)
        return normalize(advantages) if self.config.normalize_advantages else advantages, returns

    def _value_loss(self, batch: ValueBatch, tap: Tap, pool: Pool) -> Fit:
        values = by_parts(self.critic, tap("observations", as_rows(batch.observations)), self.parts)
        values = tf.reshape(tap("values", values), batch.returns.shape)
        loss = tap("value_loss", value_loss(values, batch.returns))
        return Fit(loss, {"value_loss": loss}, moments(batch.returns - values), moments(batch.returns))


def _check_apart(actor: keras.Model, critic: keras.Model) -> None:
    """Check that a fit of the values cannot move the policy out of its trust region.

    Raises:
        UserError: if the two share a variable, as in a user's own network.
    """
    own = {id(variable) for variable in actor.trainable_variables}
    if shared := [variable.path for variable in critic.trainable_variables if id(variable) in own]:
        raise UserError(
            f"TRPO fits the values apart from the policy, and this network shares {shared[0]} between them; build one "
            "whose values have their own layers."
        )
