"""Functions of tensors as a mode executes them: eager, graph or xla, each with one fixed signature."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from a2c.execution.runtime import graph_rewrites, sees_gpu

Tap = Callable[[str, tf.Tensor], tf.Tensor]  # is shown each named stage of a computation, and returns what goes on


def untapped(stage: str, tensor: tf.Tensor) -> tf.Tensor:
    """A tap that changes nothing."""
    return tensor


class Compiled:
    """`function` as `mode` executes it, traced when it is first called.

    There is one trace and never another: what does not fit `signature` raises a ValueError.

    Args:
        function: from tensors to tensors, in any structure.
        mode: "graph" compiles with tf.function, "xla" with XLA besides, "eager" runs op by op.
        signature: a TensorSpec for each tensor that it takes, in any structure.
        as_operation: call a graph as one operation if possible, see `_as_operation`.
    """

    def __init__(self, function: Callable[..., Any], mode: str, *signature: Any, as_operation: bool = False) -> None:
        self.function = function
        self.mode = mode
        self.signature = signature
        self.as_operation = as_operation
        self._specs = tf.nest.flatten(signature)
        self._admit: Callable[[Any], Any] = tf.convert_to_tensor
        self._trace: Callable[..., Any] | None = None
        self._tracing = threading.Lock()  # groups of environments call it from threads of their own

    def __call__(self, *inputs: Any) -> Any:
        """The outputs of the function."""
        if self._trace is None:
            self.trace()
        tensors = zip(tf.nest.flatten(inputs), self._specs, strict=True)
        return self.execute(*[_fitting(self._admit(x), spec) for x, spec in tensors])

    def trace(self) -> None:
        """Trace it now, unless that was done."""
        with self._tracing:
            self._trace = self._trace or self._traced()

    def execute(self, *tensors: Any) -> Any:
        """The outputs, of flat tensors that fit: what there is to time."""
        return self._trace(*tensors)  # type: ignore[misc]

    def _traced(self) -> Callable[..., Any]:
        if self.mode == "eager":
            return self._flat
        # the trace itself: called with flat tensors it takes half the time of tf.function, which looks for it first
        # without AutoGraph, which nothing here needs and whose conversion takes half of the time
        compiled = tf.function(self._flat, input_signature=self._specs, jit_compile=self.mode == "xla", autograph=False)
        trace: Callable[..., Any] = compiled.get_concrete_function()
        if self.mode == "graph" and self.as_operation and not sees_gpu():
            self._admit = _array_or_tensor
            return _as_operation(trace, self.function.__name__)
        return trace

    def _flat(self, *tensors: tf.Tensor) -> Any:
        return self.function(*tf.nest.pack_sequence_as(self.signature, tensors))


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
