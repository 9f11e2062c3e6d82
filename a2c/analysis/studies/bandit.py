"""The second question: a loss summed sample by sample, the same loss with arrays, and the mistake between the two.

The question ("Why does GradientTape behave differently when watching loop operations as opposed to array operations",
Stack Overflow) trains an actor-critic on a bandit with two arms. It learns with a loss that is summed in a loop and not
with one that is written with arrays, "although mathematically equivalent". The tape is not the cause:

1. The two are not equivalent. A critic returns its values as [n, 1], so the advantages are [n, 1]; the
   log-probabilities of the arms are [n]. Their product broadcasts to [n, n], and its mean is mean(advantage) x
   mean(log-probability), in which advantages no longer belong to arms. Only 1/n of the expected gradient is left, since
   n of the n^2 products belong together, and the others add noise: it learns, but many times slower. `array_loss` and
   `loop_loss` differ by rounding only.
2. The question's critic ends in one unit with softmax. A softmax over a single number is always 1, so this critic
   always returns 1 and has no gradient: there is no baseline to learn. A value needs a unit without activation.

`broadcast_loss` makes the first mistake on purpose, for the comparison. No training reaches it: the
losses in `a2c.algorithms` check their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box

from a2c.algorithms import losses
from a2c.config import ModelConfig
from a2c.networks.model import build_model

PAYS = (0.1, 0.9)  # the probability that an arm pays 1; else it pays 0
PULLS = 24  # in each update
UPDATES = 60
LEARNING_RATE = 0.2  # of plain gradient descent
VALUE_LOSS_COEF = 0.5
ENTROPY_COEF = 0.01
LEARNED = 0.9  # the probability of the better arm above which a seed has learned


class Pulls(NamedTuple):
    """The arms that were pulled, and their rewards."""

    observations: tf.Tensor  # [n, 2] float32
    arms: tf.Tensor  # [n] int32
    rewards: tf.Tensor  # [n] float32


Loss = Callable[[keras.Model, Pulls], tf.Tensor]


@dataclass(frozen=True)
class BanditCurve:
    """How one seed learned with one loss."""

    loss: str
    seed: int
    probabilities: tuple[float, ...]  # of the better arm, after each update


@dataclass(frozen=True)
class Gap:
    """The largest differences between two losses on the same pulls, over all seeds."""

    loss: float
    gradients: float


@dataclass(frozen=True)
class BanditResult:
    """The three losses compared."""

    updates: int
    pulls: int  # in each update
    loop_from_array: Gap
    mistake_from_array: Gap
    curves: tuple[BanditCurve, ...]
    final_probabilities: dict[str, tuple[float, ...]]  # by loss, in the order of the seeds
    learned: dict[str, int]  # by loss: how many seeds

    def sentences(self) -> list[str]:
        """What was found."""
        learned = ", ".join(f"{name} {count}" for name, count in self.learned.items())
        loop, mistake = self.loop_from_array, self.mistake_from_array
        return [
            f"on the same pulls the loop differs from the arrays by at most {loop.loss:.1e} in the loss and "
            f"{loop.gradients:.1e} in a gradient.",
            f"the broadcast mistake differs from the arrays by up to {mistake.loss:.1e} in the loss and "
            f"{mistake.gradients:.1e} in a gradient.",
            f"of {len(self.curves) // len(self.learned)} seeds these preferred the better arm with more than "
            f"{LEARNED:.0%} after {self.updates} updates: {learned}.",
        ]

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headings and rows, one row for each loss."""
        headings = ("loss", "seeds that learned", "probability of the better arm at the end: median", "least", "most")
        rows = []
        for name, final in self.final_probabilities.items():
            numbers = (f"{number:.3f}" for number in (np.median(final), min(final), max(final)))
            rows.append((name, f"{self.learned[name]} of {len(final)}", *numbers))
        return headings, rows


def compare_losses(
    *,
    seeds: Sequence[int],
    on_progress: Callable[[], None] = lambda: None,
) -> BanditResult:
    """Compare the losses on the same pulls, then let each learn from its own.

    Args:
        seeds: of the network and of the draws; each is used with every loss.
        on_progress: called after each of the len(LOSSES) * len(seeds) runs.
    """
    curves = []
    for name in LOSSES:
        for seed in seeds:
            curves.append(learn(name, seed))
            on_progress()
    final = {name: tuple(curve.probabilities[-1] for curve in curves if curve.loss == name) for name in LOSSES}
    return BanditResult(
        updates=UPDATES,
        pulls=PULLS,
        loop_from_array=largest_gap(gap(loop_loss, array_loss, seed) for seed in seeds),
        mistake_from_array=largest_gap(gap(broadcast_loss, array_loss, seed) for seed in seeds),
        curves=tuple(curves),
        final_probabilities=final,
        learned={name: sum(probability > LEARNED for probability in final[name]) for name in LOSSES},
    )


def learn(loss: str, seed: int, *, updates: int = UPDATES) -> BanditCurve:
    """Learn from the policy's own pulls by plain gradient descent.

    The draws depend on the seed alone, so losses whose policies agree see the same pulls.

    Args:
        loss: a key of `LOSSES`.
        seed: of the network and of the draws.
        updates: at least 1.
    """
    network, rng = build_network(seed), np.random.default_rng(seed)
    same_state = np.ones((PULLS, 2), np.float32)

    def update(drawn: Pulls) -> tf.Tensor:
        _, gradients = loss_and_gradients(LOSSES[loss], network, drawn)
        for variable, gradient in zip(network.trainable_variables, gradients, strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return _preference(network)

    # a graph, since an eager loop would take minutes; it still computes one sample after the other
    compiled_update = tf.function(update)
    preference = _preference(network)
    probabilities = []
    for _ in range(updates):
        preference = compiled_update(draw_pulls(rng, same_state, float(preference)))
        probabilities.append(float(preference))
    return BanditCurve(loss, seed, tuple(probabilities))


# --- the three losses -------------------------------------------------------------------------------------------------


def loop_loss(network: keras.Model, pulls: Pulls) -> tf.Tensor:
    """One sample at a time: every term is a scalar, so nothing can broadcast."""
    n = pulls.arms.shape[0]
    total = tf.constant(0.0)
    for i in tf.range(n):
        logits, values = network(pulls.observations[i][None])
        log_probs, value, reward = tf.nn.log_softmax(logits[0]), values[0], pulls.rewards[i]
        policy_loss = -log_probs[pulls.arms[i]] * tf.stop_gradient(reward - value)
        entropy = -tf.reduce_sum(tf.exp(log_probs) * log_probs)
        total += policy_loss + VALUE_LOSS_COEF * (reward - value) ** 2 - ENTROPY_COEF * entropy
    return total / n


def array_loss(network: keras.Model, pulls: Pulls) -> tf.Tensor:
    """The losses that training uses; the pulls are a rollout of n steps in one environment."""
    logits, values = network(pulls.observations)
    logits, values, arms, rewards = (x[:, None] for x in (logits, values, pulls.arms, pulls.rewards))
    policy_loss = losses.policy_gradient_loss(logits, arms, rewards - values)
    return policy_loss + VALUE_LOSS_COEF * losses.value_loss(values, rewards) - ENTROPY_COEF * losses.entropy(logits)


def broadcast_loss(network: keras.Model, pulls: Pulls) -> tf.Tensor:
    """THE MISTAKE, for demonstration: the array loss except for the policy's part, `broadcast_policy_loss`."""
    logits, values = network(pulls.observations)
    log_probs = tf.nn.log_softmax(logits)
    entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1))
    value_loss = tf.reduce_mean(tf.square(pulls.rewards - values))
    return broadcast_policy_loss(network, pulls) + VALUE_LOSS_COEF * value_loss - ENTROPY_COEF * entropy


def broadcast_policy_loss(network: keras.Model, pulls: Pulls) -> tf.Tensor:
    """THE MISTAKE: -mean over [n, n] of every log-probability times every advantage."""
    logits, values = network(pulls.observations)
    log_probs = tf.gather(tf.nn.log_softmax(logits), pulls.arms, batch_dims=1)  # [n]
    advantages = tf.stop_gradient(pulls.rewards[:, None] - values[:, None])  # [n, 1], as of a critic with one unit
    return -tf.reduce_mean(log_probs * advantages)


LOSSES: dict[str, Loss] = {"loop": loop_loss, "array": array_loss, "broadcast mistake": broadcast_loss}


# --- the comparison ---------------------------------------------------------------------------------------------------


def loss_and_gradients(loss: Loss, network: keras.Model, pulls: Pulls) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The loss, and its gradient for each trainable variable."""
    with tf.GradientTape() as tape:
        value = loss(network, pulls)
    return value, tape.gradient(value, network.trainable_variables)


def gap(one: Loss, other: Loss, seed: int) -> Gap:
    """How far two losses and their gradients are apart on the same pulls of a fresh network."""
    network, drawn = build_network(seed), random_pulls(seed)
    (loss, gradients), (other_loss, others) = (loss_and_gradients(each, network, drawn) for each in (one, other))
    distances = [float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(gradients, others, strict=True)]
    return Gap(abs(float(loss - other_loss)), max(distances))


def largest_gap(gaps: Iterable[Gap]) -> Gap:
    """The largest gap in the loss, and in a gradient."""
    losses, gradients = zip(*((one.loss, one.gradients) for one in gaps), strict=True)
    return Gap(max(losses), max(gradients))


def build_network(seed: int) -> keras.Model:
    """The actor-critic of training, with eight hidden units."""
    return build_model(ModelConfig(hidden_sizes=(8,)), Box(-np.inf, np.inf, (2,), np.float32), 2, seed=seed)


def random_pulls(seed: int) -> Pulls:
    """Pull both arms with equal probability in random states, so that no two samples are the same."""
    rng = np.random.default_rng(seed)
    return draw_pulls(rng, rng.standard_normal((PULLS, 2), np.float32), 0.5)


def draw_pulls(rng: np.random.Generator, observations: np.ndarray, preference: float) -> Pulls:
    """Pull arm 1 with the given probability in each of the states. Always draws equally many numbers from `rng`."""
    arms = (rng.random(len(observations)) < preference).astype(np.int32)
    rewards = (rng.random(len(observations)) < np.take(PAYS, arms)).astype(np.float32)
    return Pulls(tf.constant(observations), tf.constant(arms), tf.constant(rewards))


def _preference(network: keras.Model) -> tf.Tensor:
    """The probability of arm 1, the better one, in the only state there is."""
    logits, _ = network(tf.ones((1, 2)))
    return tf.nn.softmax(logits)[0, 1]
