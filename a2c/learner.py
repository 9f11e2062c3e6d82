"""The learner: acts, estimates values, and turns a trajectory into one update of the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from a2c.config import AlgorithmConfig, Config
from a2c.losses import LossParts, a2c_loss
from a2c.memory import refuse_huge_network
from a2c.model import build_model, refuse_unproven_layers, weight_shapes
from a2c.optimizer import build_optimizer
from a2c.replicas import ALONE, Replicas
from a2c.returns import Moments, explained_variance, gae, moments, normalize, pooled
from a2c.runtime import graph_rewrites, is_exact, parts_of, sees_gpu, stream_seed
from a2c.trajectory import Losses, Trajectory, env_axis

Tap = Callable[[str, tf.Tensor], tf.Tensor]  # is shown each named stage of an update, and returns what goes on


class Fit(NamedTuple):
    """How a network fits a trajectory, or a slice of one: what is reported of an update, before it is averaged."""

    total_loss: tf.Tensor
    parts: LossParts
    errors: Moments  # of returns - values
    returns: Moments


class Learner:
    """The network, its optimizer, and the three compiled functions on them.

    T = rollout_length, B = num_envs, A = num_actions. With several replicas each works on its slice of the B
    environments, and an update is that of the joint batch of all of them.

    Args:
        model: observations [N, *obs] -> (logits [N, A], values [N]).
        optimizer: built here, so that its slots exist before anything is traced or restored.
        algorithm: discount, estimator and coefficients.
        num_envs: B; with `algorithm.rollout_length` it fixes the signature of `update`.
        max_grad_norm: of the global norm of all gradients.
        mode: "graph" compiles with tf.function, "xla" with XLA besides, "eager" runs op by op.
        exact: refuse a model of which it is not known that eager and graph give the same bits.
        replicas: within whose scope model and optimizer were made.
        parts: every batch of an update goes through the network in so many, each on a core of its own; see `parts_of`.

    Raises:
        UserError: where `exact` is refused.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        algorithm: AlgorithmConfig,
        *,
        num_envs: int,
        max_grad_norm: float,
        mode: str = "graph",
        exact: bool = False,
        replicas: Replicas = ALONE,
        parts: int = 1,
    ) -> None:
        if exact:
            refuse_unproven_layers(model)
        self.model = model
        self.optimizer = optimizer
        self.algorithm = algorithm
        self.max_grad_norm = max_grad_norm
        self.replicas = replicas
        self.parts = parts
        with replicas.scope():
            optimizer.build(model.trainable_variables)
        observation, num_actions = model.input_shape[1:], model.output_shape[0][-1]
        any_batch = tf.TensorSpec((None, *observation), model.input.dtype)  # evaluation plays fewer games at once
        row = tf.TensorSpec((num_envs, *observation), model.input.dtype)
        self.trajectory_spec = trajectory_spec(row, algorithm.rollout_length, num_actions)
        draw = tf.TensorSpec((2,), tf.int64)
        often = partial(compiled, as_operation=replicas.strategy is None)  # is called often
        self._sample = often(self._sample_actions, mode, any_batch, draw)
        self._explore = self._sample if replicas.total == 1 else often(self._sample_slices, mode, row, draw)
        self._greedy = often(self._greedy_actions, mode, any_batch)
        self._value = often(self._values, mode, any_batch)
        self._update = often(self.apply_update, mode, self.trajectory_spec)

    def act(self, observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw actions [B] int32 from the policy, and return its logits [B, A] float32 beside them.

        The draw is a function of the logits and of `seed` [2] int64 alone, the same in eager and in graph.
        """
        actions, logits = self._sample(observations, seed)
        return actions.numpy(), logits.numpy()

    def explore(self, observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`act` for the B environments of a rollout, every replica on its slice.

        The draws are those that one process with the environments of all workers would make.
        """
        actions, logits = self._explore(observations, seed)
        return actions.numpy(), logits.numpy()

    def act_greedily(self, observations: np.ndarray) -> np.ndarray:
        """The most probable actions [B] int32."""
        return self._greedy(observations).numpy()  # type: ignore[no-any-return]

    def value(self, observations: np.ndarray) -> np.ndarray:
        """V of observations [B, *obs] -> [B] float32."""
        return self._value(observations).numpy()  # type: ignore[no-any-return]

    def update(self, trajectory: Trajectory) -> Losses:
        """One gradient step on one trajectory; the losses are tensors, read them only when they are shown.

        Where they are not finite (`Losses.are_finite`) network and optimizer stay as they are.
        """
        return self._update(trajectory)  # type: ignore[no-any-return]

    def weights(self) -> dict[str, np.ndarray]:
        """Every trained variable of the network, by its path such as `conv_1/kernel`."""
        return {variable.path: np.asarray(variable) for variable in self.model.trainable_variables}

    def _sample_actions(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, _ = self.model(observations)
        return draw_actions(logits, _uniform(tf.shape(logits), seed)), logits

    def _sample_slices(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.replicas.joined(self.replicas.run(self._sample_slice, observations, seed))  # type: ignore[no-any-return]

    def _sample_slice(self, observations: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, _ = self.model(self.replicas.slice(observations, axis=0))
        rows, num_actions = logits.shape
        joint = _uniform((rows * self.replicas.total, num_actions), seed)
        return draw_actions(logits, self.replicas.rows(joint, rows)), logits

    def _greedy_actions(self, observations: tf.Tensor) -> tf.Tensor:
        logits, _ = self.model(observations)
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    def _values(self, observations: tf.Tensor) -> tf.Tensor:
        _, values = self.model(observations)
        return values

    def apply_update(self, trajectory: Trajectory, tap: Tap = lambda stage, tensor: tensor) -> Losses:
        """`update` before it is compiled.

        `tap` is for looking at the numbers on their way; one that returns what it is given changes nothing.
        """
        clipped, all_losses = self.replicas.run(lambda t: self._clipped_gradients(t, tap), trajectory)
        losses: Losses = self.replicas.first(all_losses)

        def apply() -> None:
            self.replicas.apply(self.optimizer, clipped, self.model.trainable_variables)

        tf.cond(losses.are_finite(tf.math.is_finite), apply, lambda: None)
        return losses

    def _clipped_gradients(self, trajectory: Trajectory, tap: Tap) -> tuple[list[tf.Tensor], Losses]:
        """Those of the joint batch, from one replica's slice of it: first the mean, then its norm is clipped."""
        gradients, fit = self.gradients(self._slice(trajectory), tap, pool=self._pooled)
        each = self.replicas.marked(tf.stack([*fit.errors, *fit.returns]))
        *gradients, total_loss, policy_loss, value_loss, entropy, each = self.replicas.mean(
            [*gradients, fit.total_loss, *fit.parts, each]
        )
        clipped, grad_norm = tf.clip_by_global_norm(gradients, self.max_grad_norm)
        grad_norm = tap("grad_norm", grad_norm)
        clipped = _tap_each(tap, "clipped_gradient", self.model.trainable_variables, clipped)
        errors, returns = pooled(Moments(each[:, 0], each[:, 1])), pooled(Moments(each[:, 2], each[:, 3]))
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        fitted = explained_variance(errors, returns)
        return clipped, Losses(total_loss, policy_loss, value_loss, entropy, fitted, grad_norm, learning_rate)

    def gradients(
        self, trajectory: Trajectory, tap: Tap, *, pool: Callable[[Moments], Moments] = lambda own: own
    ) -> tuple[list[tf.Tensor], Fit]:
        """The gradients of the loss of a trajectory, of any number of environments; and how well the network fits.

        Args:
            trajectory: of tensors.
            tap: as of `apply_update`.
            pool: from the moments of its advantages to those that they are normalized by.
        """
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            logits, values, bootstrap_value = self._forward(trajectory, tap)
            targets = gae(
                trajectory.rewards,
                trajectory.discounts,
                trajectory.ends,
                trajectory.final_values,
                values,
                bootstrap_value,
                gae_lambda=self.algorithm.gae_lambda,
            )
            returns, advantages = tap("returns", targets.returns), tap("advantages", targets.advantages)
            if self.algorithm.normalize_advantages:
                advantages = tap("normalized_advantages", normalize(advantages, pool(moments(advantages))))
            loss, parts = a2c_loss(
                logits,
                values,
                trajectory.actions,
                advantages,
                returns,
                value_loss_coef=self.algorithm.value_loss_coef,
                entropy_coef=self.algorithm.entropy_coef,
            )
            parts = LossParts(*(tap(name, part) for name, part in parts._asdict().items()))
            loss = tap("total_loss", loss)
        gradients = _tap_each(tap, "gradient", variables, tape.gradient(loss, variables))
        return gradients, Fit(loss, parts, moments(returns - values), moments(returns))

    def _slice(self, trajectory: Trajectory) -> Trajectory:
        """This replica's environments."""
        fields = trajectory._asdict().items()
        return Trajectory(**{name: self.replicas.slice(field, axis=env_axis(name)) for name, field in fields})

    def _pooled(self, own: Moments) -> Moments:
        (each,) = self.replicas.mean([self.replicas.marked(tf.stack(own))])
        return pooled(Moments(each[:, 0], each[:, 1]))

    def _forward(self, trajectory: Trajectory, tap: Tap) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One forward pass over the T x B stored observations, and one over the B after them.

        The latter apart, since no gradient goes through it: beside the others it would be carried back as zeros.

        Returns logits [T, B, A], values [T, B] and bootstrap_value [B].
        """
        t, b, *observation = trajectory.observations.shape
        stored = tap("observations", tf.reshape(trajectory.observations, [t * b, *observation]))
        stored_parts, after_parts = self._cut(stored), self._cut(trajectory.bootstrap_observation)
        parts = [self._pass(*part) for part in zip(stored_parts, after_parts, strict=True)]
        logits, values, bootstrap_value = (tf.concat(each, axis=0) for each in zip(*parts, strict=True))
        logits, values = tap("logits", logits), tap("values", values)
        logits, values = tf.reshape(logits, [t, b, -1]), tf.reshape(values, [t, b])
        return logits, values, tap("bootstrap_value", bootstrap_value)

    def _cut(self, batch: tf.Tensor) -> list[tf.Tensor]:
        """A batch [N, ...] in `parts` of N / parts rows, in their order."""
        if self.parts == 1:
            return [batch]
        parts = tf.split(tf.reshape(batch, [self.parts, -1]), self.parts)  # long rows are not copied
        return [tf.reshape(part, [-1, *batch.shape[1:]]) for part in parts]

    def _pass(self, observations: tf.Tensor, bootstrap_observations: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Logits [n, A] and values [n] of one part, then its bootstrap values [b].

        No part waits for another, and the tape adds up their gradients. Within a part the order is fixed: else one
        core may get the bootstrap values of all parts.
        """
        outputs = self.model(observations)
        with tf.control_dependencies(outputs):
            _, bootstrap_values = self.model(bootstrap_observations)
        return *outputs, bootstrap_values


def build_learner(config: Config, observation_space: Any, num_actions: int, *, replicas: Replicas = ALONE) -> Learner:
    """The learner of a configuration, with fresh weights, on one device or on the given replicas.

    Raises:
        UserError: where the network does not fit the observations, or the machine's memory.
    """
    refuse_huge_network(weight_shapes(config.model, observation_space, num_actions))
    with replicas.scope():
        model = build_model(
            config.model,
            observation_space,
            num_actions,
            seed=stream_seed(config.seed, "weights"),
            dtype=config.runtime.precision,
        )
        optimizer = build_optimizer(config.optimizer, total_updates=config.total_updates)
    return Learner(
        model,
        optimizer,
        config.algorithm,
        num_envs=config.env.num_envs,
        max_grad_norm=config.optimizer.max_grad_norm,
        mode=config.runtime.mode,
        exact=is_exact(config.runtime),
        replicas=replicas,
        parts=parts_of(config),
    )


def draw_actions(logits: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Actions [B] int32 from logits [B, A] and numbers [B, A] in (0, 1).

    Gumbel-max: argmax(logits + Gumbel noise) is a draw from softmax(logits); XLA has no categorical draw.
    """
    return tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), axis=-1, output_type=tf.int32)


def _uniform(shape: Any, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, seed, alg="philox")


def trajectory_spec(observation: tf.TensorSpec, rollout_length: int, num_actions: int) -> Trajectory:
    """The fixed signature of `update`, for observations [B, *obs] of one step."""
    rows = (rollout_length, observation.shape[0])
    return Trajectory(
        observations=tf.TensorSpec((rollout_length, *observation.shape), observation.dtype),
        actions=tf.TensorSpec(rows, tf.int32),
        rewards=tf.TensorSpec(rows, tf.float32),
        discounts=tf.TensorSpec(rows, tf.float32),
        ends=tf.TensorSpec(rows, tf.bool),
        final_values=tf.TensorSpec(rows, tf.float32),
        behaviour_logits=tf.TensorSpec((*rows, num_actions), tf.float32),
        bootstrap_observation=observation,
    )


def compiled(
    function: Callable[..., Any], mode: str, *signature: Any, as_operation: bool = False
) -> Callable[..., Any]:
    """`function` as `mode` executes it: eager, graph or xla.

    There is one trace and never another: what does not fit `signature` raises a ValueError.

    Args:
        function: from tensors to tensors, in any structure.
        mode: see `Learner`.
        signature: a TensorSpec for each tensor that it takes.
        as_operation: where it can be, a graph is called as one operation, see `_as_operation`.
    """
    specs = tf.nest.flatten(signature)

    def flat(*tensors: tf.Tensor) -> Any:
        return function(*tf.nest.pack_sequence_as(signature, tensors))

    execute: Callable[..., Any] = flat
    admit: Callable[[Any], Any] = tf.convert_to_tensor
    if mode != "eager":
        # the trace itself: called with flat tensors it takes half the time of tf.function, which looks for it first
        execute = tf.function(flat, input_signature=specs, jit_compile=mode == "xla").get_concrete_function()
    if mode == "graph" and as_operation and not sees_gpu():
        execute, admit = _as_operation(execute, function.__name__), _array_or_tensor

    def call(*inputs: Any) -> Any:
        return execute(*[_fitting(admit(x), spec) for x, spec in zip(tf.nest.flatten(inputs), specs, strict=True)])

    return call


def _as_operation(trace: Any, name: str) -> Callable[..., Any]:
    """A trace in the form of one operation on flat tensors or arrays, for what is called at every step.

    The call costs a fifth. And where no control flow is in it, all of it runs in the calling thread, on that thread's
    core, one operation after the other; as a function it is handed to a thread of TensorFlow's, which has to be woken,
    on any core. With control flow (an update has a tf.cond) it has TensorFlow's threads, and its parts run at a time.

    No gradient goes through it, an error in it names no line, and TensorFlow keeps it until the process ends.
    """
    captured, dtypes, rewrites = trace.captured_inputs, [output.dtype for output in trace.outputs], graph_rewrites()

    def execute(*inputs: tf.Tensor | np.ndarray) -> Any:
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=[*inputs, *captured], Tout=dtypes, f=trace, config_proto=rewrites, name=name
        )
        return tf.nest.pack_sequence_as(trace.structured_outputs, outputs)

    return execute


def _array_or_tensor(value: Any) -> Any:
    """An operation reads an array where it is, and is done with it when it returns; a tensor is a copy of a copy.

    So no function may return what it was given, or keep it in a variable: that would change as the array does. (An
    array is copied once where it is not contiguous, or starts at no multiple of 64 bytes.)
    """
    return value if isinstance(value, np.ndarray) else tf.convert_to_tensor(value)


def _fitting(given: Any, spec: tf.TensorSpec) -> Any:
    if spec.dtype != given.dtype or not spec.shape.is_compatible_with(given.shape):
        raise ValueError(f"expected {spec.dtype.name} {spec.shape}, not {given.dtype.name} {given.shape}")
    return given


def _tap_each(tap: Tap, stage: str, variables: list[Any], tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Show the tensors of all variables, the last layer's first: the order in which gradients are computed."""
    shown = [tap(f"{stage} {v.path}", x) for v, x in zip(reversed(variables), reversed(tensors), strict=True)]
    return shown[::-1]
