"""SAC, soft actor-critic, for discrete actions: a policy that is paid for its entropy, two critics, and a replay."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import keras
import numpy as np
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Batches
from a2c.algorithms.gradient_step import Fit, GradientStep, LossFunction, Metrics, Pool
from a2c.algorithms.losses import entropy, soft_values, value_loss
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
from a2c.algorithms.policy import ActorCriticPolicy, network, observations_spec
from a2c.algorithms.returns import moments
from a2c.algorithms.sections import SACSection
from a2c.config import Config
from a2c.data.replay import Replay, replay_of
from a2c.data.rollout import Array, Rollout
from a2c.execution.compile import Compiled, Tap
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import parts_of, stream_seed
from a2c.networks.optimizer import build_optimizer


class ObservationBatch(NamedTuple):
    """The batch of a gradient step of the policy."""

    observations: Array  # [1, N, *obs]


class TemperatureBatch(NamedTuple):
    """The batch of a gradient step of the temperature."""

    entropies: Array  # [1, 1] float32: of the policy, the mean over the batch before


class SAC(Algorithm):
    """Haarnoja et al. 2018, for discrete actions: Christodoulou 2019, arXiv 1910.07207.

    The expectations over actions are sums, so no action is drawn but in the environments. A gradient step is three:
    of the critics, the policy, and the temperature; then the targets follow the critics. The policy's network has a
    value head too, which is fitted to the soft value beside it and which `watch` shows. It enters no target, but it
    shapes the layers that it shares with the policy.
    """

    policy: ActorCriticPolicy
    memory: Replay
    networks = ("critics", "targets")

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section = self.config = cast(SACSection, config.algorithm)
        self.objective, self.parts = Objective.of(config), parts_of(config)
        check_batch(section.batch_size, self.parts)
        steps = total_gradient_steps(config, section)
        optimizers = [build_optimizer(config.optimizer, total_steps=steps) for _ in range(3)]
        policy = self.policy = self.build_policy(config, space, num_actions)
        self.critics, self.targets = _critics(config, space, num_actions), _critics(config, space, num_actions)
        self.memory = replay_of(config.env, space, capacity=section.replay_capacity, n_step=section.n_step)
        self.sample_seed = stream_seed(config.seed, "samples")
        self.target_entropy = section.target_entropy * float(np.log(policy.model.output_shape[0][-1]))
        first = np.log(section.first_temperature)
        self.log_temperature = keras.Variable(first, dtype="float32", name="log_temperature")
        for critic, target in zip(self.critics, self.targets, strict=True):
            target.set_weights(critic.get_weights())
        batch = transitions_spec(observations_spec(policy.model, 1, section.batch_size), section.n_step)
        learned = {
            "critics": [variable for critic in self.critics for variable in critic.trainable_variables],
            "policy": policy.model.trainable_variables,
            "temperature": [self.log_temperature],
        }
        losses: dict[str, tuple[LossFunction, Any]] = {
            "critics": (self._critic_loss, batch),
            "policy": (self._policy_loss, ObservationBatch(batch.observations)),
            "temperature": (self._temperature_loss, TemperatureBatch(tf.TensorSpec((1, 1), tf.float32))),
        }
        mode, limit = config.runtime.mode, config.optimizer.max_grad_norm
        self.steps = {
            name: GradientStep(loss, learned[name], optimizer, spec, max_grad_norm=limit, mode=mode)
            for (name, (loss, spec)), optimizer in zip(losses.items(), optimizers, strict=True)
        }
        self._follow = Compiled(self._follow_critics, mode, as_operation=True)
        self.traced = (self._follow,)
        self.variables = {
            "model": policy.model.variables,
            "critics": [variable for critic in self.critics for variable in critic.variables],
            "targets": [variable for target in self.targets for variable in target.variables],
            "temperature": [self.log_temperature],
            **{f"{name} optimizer": each.variables for name, each in zip(losses, optimizers, strict=True)},
        }

    build_policy = staticmethod(ActorCriticPolicy)

    def gauges(self) -> Metrics:
        """See `Algorithm`."""
        return {"temperature": self._temperature(), "replay_size": tf.constant(float(self.memory.size))}

    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """Transitions drawn from the replay, to which the rollout is added first; three steps on each batch."""
        self.memory.add(rollout)
        for samples in drawn(self.memory, self.config, seed=self.sample_seed, updates=updates):
            batch = transitions(samples, self.objective)
            yield "critics", batch
            metrics = yield "policy", ObservationBatch(batch.observations)
            metrics["policy_grad_norm"] = metrics.pop("grad_norm")
            mean = np.reshape(metrics["entropy"], (1, 1))
            del (yield "temperature", TemperatureBatch(mean))["grad_norm"]  # the critics' is reported
            self._follow()

    def _temperature(self) -> tf.Tensor:
        return tf.exp(tf.convert_to_tensor(self.log_temperature))

    def _follow_critics(self) -> tf.Tensor:
        """Move the targets towards the critics by Polyak averaging; returns nothing of use.

        What is not trained, such as the statistics of a user's layers, is copied.
        """
        for critic, target in zip(self.critics, self.targets, strict=True):
            for variable, follower in zip(critic.variables, target.variables, strict=True):
                if variable.trainable:
                    follower.assign_add(self.config.polyak * (tf.convert_to_tensor(variable) - follower))
                else:
                    follower.assign(variable)
        return tf.constant(0)

    def _critic_loss(self, batch: Transitions, tap: Tap, pool: Pool) -> Fit:
        following = batch.next_observations[0]
        valued = tap("target_q_values", self._smaller(self.targets, following))
        soft = soft_values(by_parts(self.policy.model, following, self.parts)[0], valued, self._temperature())
        targets = tap("targets", tf.stop_gradient(n_step_targets(batch, soft)))
        observations = tap("observations", batch.observations[0])
        chosen = [
            tf.gather(by_parts(critic, observations, self.parts), batch.actions[0], batch_dims=1)[None]
            for critic in self.critics
        ]
        loss = tap("critic_loss", value_loss(chosen[0], targets) + value_loss(chosen[1], targets))
        parts = {"critic_loss": loss, "q_value": tf.reduce_mean(chosen[0])}
        return Fit(loss, parts, moments(targets - chosen[0]), moments(targets))

    def _policy_loss(self, batch: ObservationBatch, tap: Tap, pool: Pool) -> Fit:
        observations = tap("observations", batch.observations[0])
        logits, values = by_parts(self.policy.model, observations, self.parts)
        smaller = tf.stop_gradient(self._smaller(self.critics, observations))
        soft = tap("soft_values", soft_values(tap("logits", logits), smaller, self._temperature()))
        policy_loss, fit = -tf.reduce_mean(soft), value_loss(tap("values", values)[None], soft[None])
        parts = {"policy_loss": policy_loss, "value_loss": fit, "entropy": entropy(logits[None])}
        loss = policy_loss + self.config.value_loss_coef * fit
        return Fit(loss, parts, moments(soft - values), moments(soft))

    def _temperature_loss(self, batch: TemperatureBatch, tap: Tap, pool: Pool) -> Fit:
        excess = batch.entropies - self.target_entropy
        loss = tap("temperature_loss", tf.reduce_mean(self._temperature() * excess))
        return Fit(loss, {})

    def _smaller(self, models: list[keras.Model], observations: tf.Tensor) -> tf.Tensor:
        """The smaller Q of two networks, [N, A]."""
        return tf.minimum(*(by_parts(model, observations, self.parts) for model in models))


def _critics(config: Config, space: Any, num_actions: int) -> list[keras.Model]:
    """Two networks of Q with fresh weights, others than the policy's."""
    configs = [config.model_copy(update={"seed": stream_seed(config.seed, f"{n} critic")}) for n in ("first", "second")]
    whole = [network(each, space, num_actions) for each in configs]
    return [keras.Model(each.input, each.outputs[0]) for each in whole]
