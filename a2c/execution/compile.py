"""Functions of tensors, executed as eager, graph or xla, each with one fixed signature."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from a2c.execution.runtime import graph_rewrites, sees_gpu

Tap = Callable[[str, tf.Tensor], tf.Tensor]  # gets each named stage of a computation; its result is used instead


def untapped(stage: str, tensor: tf.Tensor) -> tf.Tensor:
    """A tap that changes nothing."""
    return tensor


class Compiled:
    """A function that is compiled as `mode` says, traced at the first call.

    It is traced only once: inputs that do not fit `signature` raise a ValueError.

    Args:
        function: from tensors to tensors, in any structure.
        mode: "graph" compiles with tf.function, "xla" also with XLA, "eager" runs op by op.
        signature: a TensorSpec for each input tensor, in any structure.
        as_operation: call a graph as one operation if possible, see `_as_operation`.
    """

    def __init__(self, function: Callable[..., Any], mode: str, *signature: Any, as_operation: bool = False) -> None:
        self.function = function
        self.mode = mode
        self.signature = signature
        self.as_operation = as_operation
        self._specs = tf.nest.flatten(signature)
        self._admit: Callable[[Any], Any] = tf.convert_to_tensor
        self._fitting: set[tuple[Any, ...]] = set()  # dtypes and shapes that passed `_check`, which takes 15 us
        self._trace: Callable[..., Any] | None = None
        self._tracing = threading.Lock()  # the threads of several groups of environments may call it

    def __call__(self, *inputs: Any) -> Any:
        """The outputs of the function."""
        if self._trace is None:
            self.trace()
        tensors = [self._admit(x) for x in tf.nest.flatten(inputs)]
        kinds = tuple((x.dtype, x.shape) for x in tensors)
        if kinds not in self._fitting:
            self._check(tensors)
            self._fitting.add(kinds)
        return self.execute(*tensors)

    def _check(self, tensors: list[Any]) -> None:
        if len(tensors) != len(self._specs):
            fields = ", ".join(getattr(self.signature[0], "_fields", ()))
            raise ValueError(f"expected {len(self._specs)} tensors ({fields}), not {len(tensors)}")
        for i, (tensor, spec) in enumerate(zip(tensors, self._specs, strict=True)):
            if spec.dtype != tensor.dtype or not spec.shape.is_compatible_with(tensor.shape):
                raise ValueError(f"{self._name(i)}expected {_kind(spec)}, not {_kind(tensor)}")

    def trace(self) -> None:
        """Trace it now, if that was not done yet."""
        with self._tracing:
            self._trace = self._trace or self._traced()

    def execute(self, *tensors: Any) -> Any:
        """The outputs for flat tensors that fit the signature, without checks: the part to time."""
        return self._trace(*tensors)  # type: ignore[misc]

    def _traced(self) -> Callable[..., Any]:
        if self.mode == "eager":
            return self._flat
        # call the trace itself: with flat tensors it takes half the time of tf.function, which looks up the trace first
        # no AutoGraph: nothing here needs it, and its conversion takes half of the time
        compiled = tf.function(self._flat, input_signature=self._specs, jit_compile=self.mode == "xla", autograph=False)
        trace: Callable[..., Any] = compiled.get_concrete_function()
        if self.mode == "graph" and self.as_operation and not sees_gpu():
            self._admit = _array_or_tensor
            return _as_operation(trace, self.function.__name__)
        return trace

    def _name(self, index: int) -> str:
        """The field of this input if the signature is a named tuple, as the start of a sentence."""
        fields = getattr(self.signature[0], "_fields", ())
        return f"{fields[index]}: " if len(fields) == len(self._specs) else ""

    def _flat(self, *tensors: tf.Tensor) -> Any:
        return self.function(*tf.nest.pack_sequence_as(self.signature, tensors))


def _as_operation(trace: Any, name: str) -> Callable[..., Any]:
    """A trace as one operation on flat tensors or arrays, for functions that are called at every step.

    The call takes a fifth of the time. Without control flow, all operations run in sequence in the calling thread, on
    its core; a function would run in a TensorFlow thread that must be woken, on any core. With control flow (an update
    has a tf.cond), it runs in TensorFlow's threads, its parts in parallel.

    No gradient flows through it, its errors name no line, and TensorFlow keeps it until the process ends.
    """
    captured, dtypes, rewrites = trace.captured_inputs, [output.dtype for output in trace.outputs], graph_rewrites()
    structure = trace.structured_outputs
    # Keras packs in a fifth of tf.nest's time, but OrderedDicts in another order
    order = keras.tree.flatten(tf.nest.pack_sequence_as(structure, range(len(dtypes))))

    def execute(*inputs: tf.Tensor | np.ndarray) -> Any:
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=[*inputs, *captured], Tout=dtypes, f=trace, config_proto=rewrites, name=name
        )
        return keras.tree.pack_sequence_as(structure, [outputs[place] for place in order])

    return execute


def _array_or_tensor(value: Any) -> Any:
    """Pass arrays through, since an operation reads them without a copy; a conversion to a tensor costs two copies.

    So no function may return an input or keep it in a variable: it would change with the array. (An array is copied
    once if it is not contiguous or not aligned to 64 bytes.)
    """
    return value if isinstance(value, np.ndarray) else tf.convert_to_tensor(value)


def _kind(tensor: Any) -> str:
    """The dtype and shape of a tensor, an array or a TensorSpec."""
    return f"{tensor.dtype.name} {tuple(tensor.shape)}"
