"""Munchausen DQN (Vieillard et al. 2020), DQN with other targets: an algorithm of your own that learns from a replay.

In this folder, with the settings of DQN's presets:

    a2c train --env Catch --algorithm munchausen:Munchausen --run-dir runs/mine
    a2c eval runs/mine --algorithm munchausen:Munchausen
"""

from typing import Annotated

import tensorflow as tf
from pydantic import Field

from a2c.algorithms.dqn import DQN
from a2c.algorithms.off_policy import n_step_targets
from a2c.algorithms.sections import DQNSection
from a2c.types import NUMBER, Probability


class Munchausen(DQN):
    """The reward of an action also has alpha tau log pi(a | s), and the next value is soft (equation 4).

    pi is the softmax of the target network's Q / tau. With `n_step` > 1 the first reward alone has the bonus. `double`,
    which some of DQN's presets set, has no effect.
    """

    class Section(DQNSection):
        TITLE = "Munchausen DQN (Vieillard et al. 2020, arXiv 2007.14430)"
        temperature: Annotated[float, Field(gt=0, le=100), NUMBER] = 0.03
        """tau: how much the policy's entropy counts."""
        bonus: Probability = 0.9
        """alpha: how much the log-probability of the action counts."""

    def targets(self, batch, tap):
        """The targets y [1, N]."""
        tau = self.config.temperature
        now, then = (self._q_values(self.target, x[0]) / tau for x in (batch.observations, batch.next_observations))
        log_probability = tf.gather(tf.nn.log_softmax(now), batch.actions[0], batch_dims=1)
        bonus = self.config.bonus * tf.clip_by_value(tau * log_probability, -1.0, 0.0)
        rewards = tf.concat([batch.rewards[:1] + bonus, batch.rewards[1:]], axis=0)
        return tf.stop_gradient(
            n_step_targets(batch._replace(rewards=rewards), tau * tf.reduce_logsumexp(then, axis=-1))
        )
