"""REINFORCE (Williams 1992), with or without a baseline: an algorithm of your own in one file.

In this folder:

    a2c train --env Catch --algorithm reinforce:Reinforce --set algorithm.baseline=false --run-dir runs/mine
    a2c eval runs/mine --algorithm reinforce:Reinforce

No command imports code that you do not name. From Python: `train(config, folder, algorithm=Reinforce)`.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm
from a2c.algorithms.gradient_step import Fit, GradientStep
from a2c.algorithms.losses import entropy, policy_gradient_loss, value_loss
from a2c.algorithms.objective import Objective, terms
from a2c.algorithms.parts import as_rows, by_parts
from a2c.algorithms.policy import ActorCriticPolicy
from a2c.algorithms.returns import moments
from a2c.algorithms.section import EXPLAINED_VARIANCE, LOSSES, STEP, AlgorithmSection, Promises
from a2c.execution.replicas import ALONE
from a2c.execution.runtime import parts_of
from a2c.networks.optimizer import build_optimizer


class Played(NamedTuple):
    """What one update learns from; T = rollout_length, B = num_envs."""

    observations: Any  # [T, B, *obs]
    actions: Any  # [T, B] int32
    returns: Any  # [T, B] float32: discounted rewards until the episode ended
    whole: Any  # [T, B] float32: 1; 0 if it did not end within the rollout, so that its return is not known


class Reinforce(Algorithm):
    """The gradient of -log pi(a | s) (R - V(s)); the baseline V is the network's value head, or 0."""

    class Section(AlgorithmSection):  # `algorithm:` of a run's configuration, beside name, gamma and rollout_length
        TITLE, PROMISES = "REINFORCE (Williams 1992)", Promises(workers=False)
        METRICS = (*LOSSES, EXPLAINED_VARIANCE, *STEP)  # the names of all that an update reports
        baseline: bool = True

    def __init__(self, config, space, num_actions, replicas=ALONE):
        self.config, self.policy = config.algorithm, self.build_policy(config, space, num_actions)
        self.parts = parts_of(config)  # a batch is cut into so many; each core takes one through the network
        self.objective = Objective.of(config)  # gamma, clipped rewards, and whether a lost life ends the return
        network = self.policy.model
        optimizer = build_optimizer(config.optimizer, total_steps=config.total_updates)  # one gradient step each
        rows = (self.config.rollout_length, config.env.num_envs)
        others = [tf.TensorSpec(rows, kind) for kind in (tf.int32, tf.float32, tf.float32)]
        signature = Played(tf.TensorSpec((*rows, *space.shape), network.input.dtype), *others)
        how = {"max_grad_norm": config.optimizer.max_grad_norm, "mode": config.runtime.mode}
        self.steps = {"update": GradientStep(self._loss, network.trainable_variables, optimizer, signature, **how)}
        self.variables = {"model": network.variables, "optimizer": optimizer.variables}  # what a checkpoint holds

    build_policy = staticmethod(ActorCriticPolicy)  # all that playing needs

    def batches(self, rollout, updates):
        """Yield the name and the batch of each gradient step: one, on the whole rollout."""
        facts = (rollout.rewards, rollout.terminated, rollout.truncated, rollout.life_lost)
        rewards, _, ends = terms(*facts, self.objective)
        whole = np.maximum.accumulate(ends[::-1])[::-1].astype(np.float32)
        returns, after = np.zeros_like(whole), 0.0
        for t in reversed(range(len(ends))):
            returns[t] = after = rewards[t] + self.config.gamma * after * ~ends[t]
        yield "update", Played(rollout.observations[:-1], rollout.actions, returns * whole, whole)

    def _loss(self, played, tap, pool):
        logits, values = by_parts(self.policy.model, as_rows(played.observations), self.parts)
        logits, values = (tf.reshape(x, [*played.whole.shape, *x.shape[1:]]) for x in (logits, values))
        values, baseline = values * played.whole, float(self.config.baseline)
        policy_loss = policy_gradient_loss(logits, played.actions, played.returns - baseline * values)
        error, bonus = value_loss(values, played.returns), entropy(logits)
        parts = {"policy_loss": policy_loss, "value_loss": error, "entropy": bonus}
        loss, errors = policy_loss + baseline * error - 0.01 * bonus, moments(played.returns - values)
        return Fit(loss, parts, errors, moments(played.returns))
