"""The first question's experiment: Adam's moments after a few updates in eager execution and in a graph.

The question (https://stackoverflow.com/questions/78629170) trains a 64-64-1 network with Adam at 5e-4 on advantages by
the TensorFlow tutorial's discounted sums, divided by their standard deviation without an epsilon, and finds that the
moments differ after five updates. Two of Grappler's rewrites cause the difference:

- arithmetic_optimization turns x / sqrt(y) into x * rsqrt(y): the standardisation. The epsilon that the tutorial adds
  to the deviation would have kept it from being rewritten;
- constant_folding turns x / c into x * (1 / c): the policy's loss, which divides by its standard deviation.

The question's own loss is not known. The policy's loss below needs both passes off. The value loss divides by no
constant, so it needs only arithmetic_optimization off. With it the question's other finding holds too: nothing differs
without the discounted sums (`standardize=False`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

STEPS = 32  # of the recorded episode
GAMMA = 0.99
LEARNING_RATE = 5e-4
STD = 0.2  # of the policy; a power of two would divide without rounding, and hide the effect of constant_folding
DATA_SEED = 0

Function = Callable[..., Any]
Execution = Callable[[Function], Function]  # tf.function, or the identity
Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class QuestionResult:
    """Eager against graph.

    Of the optimizer's variables, iterations and learning rate are always equal; the two moments of the output's bias,
    which are single numbers, may be equal by chance.
    """

    advantages_equal: bool
    advantages_distance: float  # the largest absolute one, as all below
    optimizer_variables: int
    optimizer_variables_equal: int  # bit for bit, after the last update
    weight_distances: tuple[float, ...]  # after each update
    first_moment_distances: tuple[float, ...]
    second_moment_distances: tuple[float, ...]

    @property
    def updates(self) -> int:
        """How many there were."""
        return len(self.weight_distances)

    @property
    def complete(self) -> bool:
        """Whether all agree."""
        optimizer_equal = self.optimizer_variables_equal == self.optimizer_variables
        return self.advantages_equal and optimizer_equal and not any(self.weight_distances)


class Recorded(NamedTuple):
    """The data of an episode; the same in every process."""

    states: tf.Tensor  # [STEPS, 4] float32
    actions: tf.Tensor  # [STEPS] float32
    td_errors: tf.Tensor  # [STEPS] float32


class Snapshot(NamedTuple):
    """All variables after one update."""

    weights: list[np.ndarray]
    optimizer: list[np.ndarray]  # iterations, learning rate, then a first and a second moment for each weight

    @property
    def first_moments(self) -> list[np.ndarray]:
        """The means of the gradients: momentum, as the question calls it."""
        return self.optimizer[2::2]

    @property
    def second_moments(self) -> list[np.ndarray]:
        """The means of their squares: velocity."""
        return self.optimizer[3::2]


class Trained(NamedTuple):
    """One training in one way of execution."""

    advantages: np.ndarray
    snapshots: list[Snapshot]


def run_question(*, updates: int = 5, loss: str = "policy", standardize: bool = True) -> QuestionResult:
    """Train eagerly and in graphs, with the TensorFlow settings of this process, and compare.

    Args:
        updates: at least 1, all on the same recorded data.
        loss: a key of `LOSSES`.
        standardize: False: the advantages are the recorded TD errors themselves.
    """
    advantages_of = discounted_cumulative_sums if standardize else tf.identity
    eager = train(lambda function: function, LOSSES[loss], advantages_of, updates)
    graph = train(tf.function, LOSSES[loss], advantages_of, updates)
    advantages = (eager.advantages, graph.advantages)
    equal = [_same_bits(pair) for pair in _pairs(eager, graph, lambda snapshot: snapshot.optimizer)[-1]]
    return QuestionResult(
        advantages_equal=_same_bits(advantages),
        advantages_distance=_distance([advantages]),
        optimizer_variables=len(equal),
        optimizer_variables_equal=sum(equal),
        weight_distances=_distances(eager, graph, lambda snapshot: snapshot.weights),
        first_moment_distances=_distances(eager, graph, lambda snapshot: snapshot.first_moments),
        second_moment_distances=_distances(eager, graph, lambda snapshot: snapshot.second_moments),
    )


def train(execution: Execution, loss: Loss, advantages_of: Function, updates: int) -> Trained:
    """The question's training loop. Advantages and update are two functions, each executed in the given way."""
    data, network = recorded_data(), build_network()
    optimizer = keras.optimizers.Adam(LEARNING_RATE)
    optimizer.build(network.trainable_variables)

    def update(states: tf.Tensor, actions: tf.Tensor, advantages: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = loss(network(states)[:, 0], actions, advantages)
        gradients = tape.gradient(value, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))

    advantages_of, update = execution(advantages_of), execution(update)
    snapshots = []
    for _ in range(updates):
        advantages = advantages_of(data.td_errors)
        update(data.states, data.actions, advantages)
        snapshots.append(Snapshot(_values(network.trainable_variables), _values(optimizer.variables)))
    return Trained(advantages.numpy(), snapshots)


def discounted_cumulative_sums(td_errors: tf.Tensor) -> tf.Tensor:
    """G_t = td_error_t + gamma G_{t+1} of [n], standardised: the tutorial's loop with the question's division."""
    n = tf.shape(td_errors)[0]
    total, totals = tf.constant(0.0), tf.TensorArray(tf.float32, size=n)
    for t in tf.range(n - 1, -1, -1):
        total = td_errors[t] + GAMMA * total
        totals = totals.write(t, total)
    returns = totals.stack()
    # reduce_std is a root and nothing is added to it: this pattern becomes rsqrt
    return (returns - tf.reduce_mean(returns)) / tf.math.reduce_std(returns)


def policy_loss(means: tf.Tensor, actions: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
    """-mean[ log pi(a_t | s_t) A_t ] of a Gaussian policy: the network outputs its mean, the deviation is fixed."""
    log_probs = -0.5 * tf.square((actions - means) / STD) - math.log(STD * math.sqrt(2 * math.pi))
    return -tf.reduce_mean(log_probs * advantages)


def value_loss(values: tf.Tensor, _actions: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
    """mean[ (A_t - V(s_t))^2 ]: the network is a critic of the standardised sums."""
    return tf.reduce_mean(tf.square(advantages - values))


LOSSES: dict[str, Loss] = {"policy": policy_loss, "value": value_loss}


def recorded_data() -> Recorded:
    """Fixed random data, as if recorded in an episode."""
    rng = np.random.default_rng(DATA_SEED)
    states, actions, td_errors = (rng.standard_normal(shape, np.float32) for shape in ((STEPS, 4), (STEPS,), (STEPS,)))
    return Recorded(tf.constant(states), tf.constant(np.float32(STD) * actions), tf.constant(td_errors))


def build_network() -> keras.Model:
    """64-64-1 with rectified hidden units. Each layer has a seed, so that the first weights are always the same."""
    layers: list[Any] = [keras.Input((4,))]
    for seed, (units, activation) in enumerate(((64, "relu"), (64, "relu"), (1, None))):
        initializer = keras.initializers.GlorotUniform(seed=seed)
        layers.append(keras.layers.Dense(units, activation, kernel_initializer=initializer))
    return keras.Sequential(layers)


Pair = tuple[np.ndarray, np.ndarray]
Choice = Callable[[Snapshot], list[np.ndarray]]


def _values(variables: Sequence[Any]) -> list[np.ndarray]:
    return [variable.numpy() for variable in variables]


def _pairs(eager: Trained, graph: Trained, choice: Choice) -> list[list[Pair]]:
    both = zip(eager.snapshots, graph.snapshots, strict=True)
    return [list(zip(choice(one), choice(other), strict=True)) for one, other in both]


def _same_bits(pair: Pair) -> bool:
    return pair[0].tobytes() == pair[1].tobytes()


def _distance(pairs: Sequence[Pair]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def _distances(eager: Trained, graph: Trained, choice: Choice) -> tuple[float, ...]:
    return tuple(_distance(pairs) for pairs in _pairs(eager, graph, choice))
