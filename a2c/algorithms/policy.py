"""Policies: observations and a seed -> actions, and other outputs to store."""

from __future__ import annotations

from typing import Any, Literal, Protocol, cast, runtime_checkable

import keras
import numpy as np
import tensorflow as tf

from a2c.algorithms.losses import duelling_q_values
from a2c.algorithms.sections import DQNSection
from a2c.config import Config
from a2c.execution.compile import Compiled
from a2c.execution.memory import check_network_memory
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import is_exact, stream_seed
from a2c.networks.model import build_model, check_layers, weight_shapes

Said = dict[str, np.ndarray]  # [B, ...] float32 by name
Shown = Literal["probabilities", "q_values"]
Head = Literal["softmax", "identity", "duelling"]

HELD, SPELL = 1 / 8, 16  # share of rows that hold their numbers; holds in a spell; see `held_uniform`


@runtime_checkable
class Policy(Protocol):
    """Chooses actions: the only part of an algorithm that playing, watching and exporting need.

    B = num_envs, N = any number of observations. A draw is a function of the observations, the weights and `seed` [2]
    int64 only, the same in eager and graph execution.

    Attributes:
        model: the network; observations [N, *obs] -> its outputs.
        says: the shape [...] of each array that `explore` returns besides the actions, by name.
        compiled: the compiled functions by name, among them `explore` and `act`, which return actions [N] and what is
            said by name, `greedy`, which returns actions [N], and `look`.
        acts: how `act` chooses, in a word for people.
        shows: what the network tells of each action.
        head: what makes it of the network's two outputs; see `duelling_q_values` for the third.
    """

    model: keras.Model
    says: dict[str, tuple[int, ...]]
    compiled: dict[str, Compiled]
    acts: str
    shows: Shown
    head: Head

    def act(self, observations: np.ndarray, seed: np.ndarray) -> np.ndarray:
        """Draw actions [N] int32 as the trained agent plays."""
        actions, _ = self.compiled["act"](observations, seed)
        return actions.numpy()  # type: ignore[no-any-return]

    def act_greedily(self, observations: np.ndarray) -> np.ndarray:
        """The best actions [N] int32, without a draw."""
        return self.compiled["greedy"](observations).numpy()  # type: ignore[no-any-return]

    def explore(self, observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, Said]:
        """Draw actions in training, for the B environments of a rollout or for a group of them.

        Each replica works on its slice; the draws are those of one process with the environments of all workers.
        """
        actions, said = self.compiled["explore"](observations, seed)
        return actions.numpy(), {name: array.numpy() for name, array in said.items()}

    def look(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities or Q-values of the actions [N, A], see `shows`, and values [N], both float32."""
        of_actions, values = self.compiled["look"](observations)
        return of_actions.numpy(), values.numpy()

    def serve(self, observations: tf.Tensor) -> dict[str, tf.Tensor]:
        """What an exported network returns, float32: [N, A] by the name `shows`, and `value` [N]."""
        ...


class ActorCriticPolicy(Policy):
    """Acts with a network with a policy head and a value head: observations [N, *obs] -> (logits [N, A], values [N]).

    Args:
        config: of the run; `algorithm.noise_hold`, if there is one, is that of `held_uniform` in `explore`.
        space: of observations.
        num_actions: A.
        replicas: of the run; the network is made in their scope.
        values: whether `explore` returns the values too.

    Raises:
        UserError: as `network`.
    """

    acts = "sampled"
    shows: Shown = "probabilities"
    head: Head = "softmax"

    def __init__(
        self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE, *, values: bool = False
    ) -> None:
        model = self.model = network(config, space, num_actions, replicas)
        self._noise_hold = getattr(config.algorithm, "noise_hold", 1)  # not every section has it
        self.says = {"logits": (model.output_shape[0][-1],)}
        if values:
            self.says["values"] = ()
        self._replicas = replicas
        mode = config.runtime.mode
        any_batch = observations_spec(model, None)  # evaluation plays fewer games
        row = observations_spec(model, config.env.num_envs)
        draw = tf.TensorSpec((2,), tf.int64)
        often = replicas.strategy is None  # as one operation, since it is called often
        act = explore = Compiled(self._act, mode, any_batch, draw, as_operation=often)
        if replicas.total > 1:
            explore = Compiled(self._explore_slices, mode, row, draw)
        elif self._noise_hold > 1:
            explore = Compiled(self._explore, mode, any_batch, draw, as_operation=often)
        self.compiled = {
            "explore": explore,
            "act": act,
            "greedy": Compiled(self._greedy, mode, any_batch, as_operation=often),
            "value": Compiled(self._value, mode, any_batch, as_operation=often),
            "look": Compiled(self._look, mode, any_batch),
        }

    def value(self, observations: np.ndarray) -> np.ndarray:
        """V of observations [N, *obs] -> [N] float32."""
        return self.compiled["value"](observations).numpy()  # type: ignore[no-any-return]

    def serve(self, observations: tf.Tensor) -> dict[str, tf.Tensor]:
        """See `Policy`."""
        logits, values = self.model(observations)
        return {self.shows: tf.nn.softmax(logits), "value": values}

    def _act(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return self._draw(observations, seed, hold=1)

    def _explore(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return self._draw(observations, seed, hold=self._noise_hold)

    def _draw(self, observations: tf.Tensor, seed: tf.Tensor, hold: int) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        outputs = self.model(observations)
        return draw_actions(outputs[0], held_uniform(tf.shape(outputs[0]), seed, hold)), self._say(*outputs)

    def _explore_slices(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return self._replicas.joined(self._replicas.run(self._explore_slice, observations, seed))  # type: ignore[no-any-return]

    def _explore_slice(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        outputs = self.model(self._replicas.slice(observations, axis=0))
        rows, num_actions = outputs[0].shape
        joint = held_uniform((rows * self._replicas.total, num_actions), seed, self._noise_hold)
        return draw_actions(outputs[0], self._replicas.rows(joint, rows)), self._say(*outputs)

    def _say(self, logits: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        said = {"logits": logits, "values": values}
        return {name: said[name] for name in self.says}

    def _greedy(self, observations: tf.Tensor) -> tf.Tensor:
        logits, _ = self.model(observations)
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    def _value(self, observations: tf.Tensor) -> tf.Tensor:
        _, values = self.model(observations)
        return values

    def _look(self, observations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, values = self.model(observations)
        return tf.nn.log_softmax(logits), values


class QPolicy(Policy):
    """Takes the action with the largest Q-value, or with probability epsilon any; the value is the largest Q-value.

    The network gives two heads [N, A] and [N]. With `algorithm.duelling` Q = V + A - mean A, with A the first head and
    V the second; if not, Q is the first.

    Args:
        config: of the run, whose algorithm has the `duelling` and `final_epsilon` of `DQNSection`.
        space: of observations.
        num_actions: A.
        replicas: of the run; DQN has only one.

    Attributes:
        epsilon: in training, a variable.

    Raises:
        UserError: as `network`.
    """

    shows: Shown = "q_values"

    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        section, mode = cast(DQNSection, config.algorithm), config.runtime.mode
        model = self.model = network(config, space, num_actions, replicas)
        self.head = "duelling" if section.duelling else "identity"
        self.says = {}
        self.acts = f"epsilon-greedy ({section.final_epsilon:g})"
        self.epsilon = keras.Variable(1.0, trainable=False, name="epsilon")
        self._final_epsilon = section.final_epsilon
        any_batch = observations_spec(model, None)  # evaluation plays fewer games
        draw = tf.TensorSpec((2,), tf.int64)
        self.compiled = {
            "explore": Compiled(self._explore, mode, any_batch, draw, as_operation=True),
            "act": Compiled(self._act, mode, any_batch, draw, as_operation=True),
            "greedy": Compiled(self._greedy, mode, any_batch, as_operation=True),
            "look": Compiled(self._look, mode, any_batch),
        }

    def serve(self, observations: tf.Tensor) -> dict[str, tf.Tensor]:
        """See `Policy`."""
        q_values, values = self._look(observations)
        return {self.shows: q_values, "value": values}

    def q_values(self, model: keras.Model, observations: tf.Tensor) -> tf.Tensor:
        """Q [N, A] of observations [N, *obs], by this network or one like it."""
        first, values = model(observations)
        return duelling_q_values(first, values) if self.head == "duelling" else first

    def _explore(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return self._draw(observations, tf.convert_to_tensor(self.epsilon), seed)

    def _act(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return self._draw(observations, self._final_epsilon, seed)

    def _draw(self, observations: tf.Tensor, epsilon: Any, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return draw_epsilon_greedily(self.q_values(self.model, observations), epsilon, seed), {}

    def _greedy(self, observations: tf.Tensor) -> tf.Tensor:
        return tf.argmax(self.q_values(self.model, observations), axis=-1, output_type=tf.int32)

    def _look(self, observations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        q_values = self.q_values(self.model, observations)
        return q_values, tf.reduce_max(q_values, axis=-1)


def observations_spec(model: keras.Model, *rows: int | None) -> tf.TensorSpec:
    """Observations [*rows, *obs], as a network takes them."""
    return tf.TensorSpec((*rows, *model.input_shape[1:]), model.input.dtype)


def network(config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> keras.Model:
    """The network of a configuration, with fresh weights: always the same ones.

    Raises:
        UserError: if the network does not fit the observations or the machine's memory, or if it is not exact and
            `runtime.numerics` requires that.
    """
    check_network_memory(weight_shapes(config.model, space, num_actions))
    with replicas.scope():
        seed, precision = stream_seed(config.seed, "weights"), config.runtime.precision
        model = build_model(config.model, space, num_actions, seed=seed, dtype=precision)
    if is_exact(config.runtime):
        check_layers(model)
    return model


def draw_actions(logits: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Actions [B] int32 from logits [B, A] and numbers [B, A] in [0, 1).

    Gumbel-max: argmax(logits + Gumbel noise) is a draw from softmax(logits). XLA has no categorical draw.
    """
    return tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), axis=-1, output_type=tf.int32)


def draw_epsilon_greedily(q_values: tf.Tensor, epsilon: tf.Tensor | float, seed: tf.Tensor) -> tf.Tensor:
    """The actions [N] int32 of the largest Q-values [N, A]; with probability epsilon any, all equally likely.

    The largest of A random numbers is a draw from A actions.
    """
    n, num_actions = tf.shape(q_values)[0], q_values.shape[1]
    numbers = random_numbers((n, num_actions + 1), seed)
    preferences = tf.where(numbers[:, :1] < epsilon, numbers[:, 1:], q_values)
    return tf.argmax(preferences, axis=-1, output_type=tf.int32)


def held_uniform(shape: Any, seed: tf.Tensor, hold: int) -> tf.Tensor:
    """Random numbers [B, A] in [0, 1) of draw number t, seed = (stream, t); some rows keep theirs for `hold` draws.

    For SPELL * hold draws in a row, a row keeps its numbers with probability HELD, and then changes them every `hold`
    draws. So an undecided policy keeps to an action, and reaches what single random actions do not. Averaged over the
    numbers, an action has the policy's probabilities, but not given an observation that depends on earlier actions; no
    loss corrects this. hold = 1: all are new at each draw. After coloured noise (Hollenstein et al. 2024, arXiv
    2312.11091), which is for continuous actions, and options that repeat an action (Dabney et al. 2021, arXiv
    2006.01782).
    """
    fresh = random_numbers(shape, seed)
    if hold == 1:
        return fresh
    stream, t = tf.bitwise.invert(seed[0]), seed[1]
    kept = random_numbers(shape, tf.stack([stream, -1 - t // hold]))
    keeps = random_numbers((shape[0], 1), tf.stack([stream, t // (SPELL * hold)])) < HELD
    return tf.where(keeps, kept, fresh)


def random_numbers(shape: Any, seed: tf.Tensor) -> tf.Tensor:
    """Random numbers float32 in [0, 1), a function of `seed` [2] int64 alone, the same in eager and graph execution."""
    return tf.random.stateless_uniform(shape, seed, alg="philox")
