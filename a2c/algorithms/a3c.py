"""A3C: asynchronous actor-learners, each with its own copy of the weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from a2c.algorithms.a2c import A2C, trajectory_spec
from a2c.algorithms.algorithm import Algorithm, Batches, Iteration, Update, means
from a2c.algorithms.gradient_step import Batch, GradientStep, Metrics
from a2c.algorithms.objective import Objective
from a2c.algorithms.policy import ActorCriticPolicy, Policy
from a2c.algorithms.sections import A3CSection
from a2c.config import Config
from a2c.data.collector import RolloutCollector
from a2c.data.rollout import Episode, Rollout
from a2c.execution.compile import Compiled
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import parts_of
from a2c.networks.optimizer import build_optimizer


class Shift(NamedTuple):
    """The results of one actor in one round."""

    applied: list[Metrics]  # of the gradient steps that were applied
    failed: tuple[Batch, Metrics] | None  # the first step that was not finite, so not applied
    episodes: list[tuple[int, Episode]]  # whole games that ended, each with its row in the round


class ActorStep(GradientStep):
    """A gradient step of one actor: computed with its own weights, applied to the shared weights.

    Args:
        *arguments, **options: of `GradientStep`; all actors share the optimizer.
        shared: the shared variables, one for each of `variables`.
        lock: protects `shared` and the optimizer. The paper has none; with it every copy is consistent.
        mode: see `Compiled`.

    Attributes:
        pieces: the compiled functions, in the order of their calls.
    """

    def __init__(self, *arguments: Any, shared: Sequence[Any], lock: threading.Lock, mode: str, **options: Any) -> None:
        super().__init__(*arguments, mode=mode, apply_to=shared, **options)
        gradients = [tf.TensorSpec(variable.shape, variable.dtype) for variable in shared]
        count = tf.TensorSpec((), self.optimizer.iterations.dtype)
        self._lock = lock
        self._copy = Compiled(self._copied, mode, as_operation=True)
        self._find = Compiled(self.clipped_gradients, mode, self.signature, as_operation=True)
        self._apply = Compiled(self._applied, mode, gradients, count, as_operation=True)
        self.pieces = (self._copy, self._find, self._apply)

    def synchronize(self) -> None:
        """Copy the shared weights."""
        with self._lock:
            self._made = self._copy()

    def __call__(self, batch: Batch) -> Metrics:
        """See `GradientStep`; `staleness` is the number of steps of other actors since `synchronize`."""
        gradients, metrics = self._find(batch)
        if not self.is_finite(metrics):
            return {**metrics, "staleness": tf.constant(np.nan)}
        with self._lock:
            staleness = self._apply(gradients, self._made)
        return {**metrics, "staleness": staleness}

    def _copied(self) -> tf.Tensor:
        """Copy the shared weights; returns the number of steps made so far."""
        for own, shared in zip(self.variables, self.apply_to, strict=True):
            own.assign(shared)
        return tf.convert_to_tensor(self.optimizer.iterations)

    def _applied(self, gradients: list[tf.Tensor], made: tf.Tensor) -> tf.Tensor:
        staleness = tf.cast(tf.convert_to_tensor(self.optimizer.iterations) - made, tf.float32)
        self.apply_gradients(gradients)
        return staleness


class Actor(A2C):
    """A2C's loss on one group of environments, with a copy of the weights.

    Args:
        config: of the run.
        policy: its network is the copy.
        num_envs: in the group.
        **shared: the optimizer, the shared weights and their lock, see `ActorStep`.
    """

    def __init__(self, config: Config, policy: ActorCriticPolicy, num_envs: int, **shared: Any) -> None:
        section = self.config = cast(A3CSection, config.algorithm)
        self.policy, self.objective, self.parts = policy, Objective.of(config), 1
        self.learn: ActorStep = ActorStep(
            self._loss,
            policy.model.trainable_variables,
            signature=trajectory_spec(policy, section.rollout_length, num_envs),
            max_grad_norm=config.optimizer.max_grad_norm,
            mode=config.runtime.mode,
            **shared,
        )


class A3C(Algorithm):
    """Mnih et al. 2016, arXiv 1602.01783, algorithm S3, with shared RMSProp (section 4).

    Each actor has a thread, a group of b environments and a copy of the weights. It repeatedly copies the shared
    weights, acts for T steps, computes the gradients of A2C's loss, and applies them to the shared weights. All actors
    synchronise only after `rollouts` rollouts each, so that there is a state to log, evaluate and save. It does not use
    replicas.
    """

    policy: ActorCriticPolicy

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section = cast(A3CSection, config.algorithm)
        self.rollouts, self.parts = section.rollouts, parts_of(config)
        self.policy = self.build_policy(config, space, num_actions)
        steps = config.total_updates * self.parts * section.rollouts
        optimizer, lock = build_optimizer(config.optimizer, total_steps=steps), threading.Lock()
        shared = {"optimizer": optimizer, "shared": self.policy.model.trainable_variables, "lock": lock}
        num_envs = config.env.num_envs // self.parts
        # one for each group of environments
        policies = [self.build_policy(config, space, num_actions) for _ in range(self.parts)]
        self.actors = [Actor(config, policy, num_envs, **shared) for policy in policies]
        self.learners = [actor.learn for actor in self.actors]
        self.traced = [actor.policy.compiled["value"] for actor in self.actors]
        self.steps = {f"actor {index}": learner for index, learner in enumerate(self.learners)}
        self.variables = {"model": self.policy.model.variables, "optimizer": optimizer.variables}

    build_policy = staticmethod(ActorCriticPolicy)

    def acting(self) -> list[Policy]:
        """See `Algorithm`."""
        return [actor.policy for actor in self.actors]

    def learning(self) -> list[Compiled]:
        """See `Algorithm`."""
        return [piece for learner in self.learners for piece in learner.pieces]

    def iterate(self, collector: RolloutCollector, updates: int) -> Iteration:
        """One round: every actor collects and learns from its rollouts, then all synchronise."""
        shifts = collector.each_group(lambda index: self._shift(index, collector))
        failed = [(name, *shift.failed) for name, shift in zip(self.steps, shifts, strict=True) if shift.failed]
        applied = [metrics for shift in shifts for metrics in shift.applied]
        update = Update(
            metrics=means(applied or [metrics for *_, metrics in failed]),
            gradient_steps=len(applied),
            failed=failed[0][:2] if failed else None,
        )
        return Iteration(update, sorted((e for shift in shifts for e in shift.episodes), key=lambda ended: ended[0]))

    def _shift(self, index: int, collector: RolloutCollector) -> Shift:
        """The round of actor `index`, in its own thread.

        After a step that is not finite, it only acts, with the weights it had then: they are needed for the diagnosis,
        and the round must have all its environment steps.
        """
        actor, learner = self.actors[index], self.learners[index]
        shift = Shift([], None, [])
        for number in range(self.rollouts):
            if shift.failed is None:
                learner.synchronize()
            rollout, episodes = collector.collect_group(index, actor.policy.explore)
            shift.episodes.extend((number * collector.rollout_length + row, episode) for row, episode in episodes)
            if shift.failed is None:
                batch = actor.trajectory(rollout)
                metrics = learner(batch)
                if learner.is_finite(metrics):
                    shift.applied.append(metrics)
                else:
                    shift = shift._replace(failed=(batch, metrics))
        return shift

    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """Not used: each actor learns from its own rollouts."""
        raise NotImplementedError("A3C has an `iterate` of its own")
