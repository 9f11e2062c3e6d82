"""Networks of `a2c.networks.model` as ONNX files: their weights in float32, one or a few ONNX operators for each layer.

Written by hand, because Keras' own ONNX export uses tf2onnx (1.17), which is looking for a maintainer, is
tested up to TensorFlow 2.15, and writes files that onnxruntime rejects if the network computes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from a2c.algorithms.policy import Head, Shown
from a2c.config import UserError
from a2c.networks.model import LINEAR, TANH, Bias, MaxPool, MotionConv2D, PixelsToFloats

OPSET = 18  # of 2023; the first in which ReduceMean takes its axes as an input
IR_VERSION = 8  # the matching file format
TO_CHANNELS_FIRST, TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def write_onnx(model: keras.Model, path: Path, head: Head, shows: Shown) -> None:
    """Write a network: `observations` [N, *obs] -> `probabilities` or `q_values` [N, A], and `value` [N], float32.

    Args:
        model: from `build_model`; a trunk in bfloat16 is written in float32, with the same weights.
        path: of the file.
        head, shows: of the policy.

    Raises:
        UserError: if the model has a layer, or a form of one, that `build_model` does not make.
        OSError: if the file cannot be written.
    """
    graph = _Graph()
    names: dict[int, str] = {}  # of the ONNX tensor for each Keras tensor
    for layer in model.operations:
        if type(layer) not in _WRITERS or not _is_plain(layer):
            raise UserError(
                f"The layer {layer.name!r} ({type(layer).__name__}) has no ONNX form here; use --format savedmodel."
            )
        inputs = [] if isinstance(layer, keras.layers.InputLayer) else keras.tree.flatten(layer.input)
        names[id(layer.output)] = _WRITERS[type(layer)](graph, layer, *(names[id(x)] for x in inputs))
    _HEADS[head](graph, shows, *(names[id(x)] for x in model.outputs))
    onnx.save(graph.model(model, shows), path)


def _is_plain(layer: keras.layers.Layer) -> bool:
    """Whether a layer has the form that its writer writes."""
    match layer:
        case keras.layers.Activation():
            return layer.activation in (TANH, LINEAR)
        case keras.layers.Dense():
            return layer.activation is LINEAR and layer.use_bias and len(layer.input.shape) == 2
        case keras.layers.Conv2D():
            plain = layer.activation is LINEAR and not layer.use_bias
            return plain and (layer.dilation_rate, layer.groups) == ((1, 1), 1)
        case keras.layers.ReLU():
            return (layer.max_value, layer.negative_slope, layer.threshold) == (None, 0, 0)
        case keras.layers.Reshape():
            return 4 not in (len(layer.input.shape), len(layer.output.shape))  # no image
        case Bias():
            return len(layer.input.shape) == 4
    return True


class _Graph:
    """The operators and weights so far. Images are channels-first, as ONNX's convolutions require."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add an operator; returns the name of its output."""
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def weight(self, value: Any, dtype: Any = np.float32) -> str:
        """Add a constant; returns its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(np.asarray(value), dtype), name))
        return name

    def model(self, model: keras.Model, shows: Shown) -> onnx.ModelProto:
        """The complete ONNX model, checked."""
        observations, (first, _) = model.inputs[0], model.outputs
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(observations.dtype))
        graph = helper.make_graph(
            self.nodes,
            "actor_critic",
            [helper.make_tensor_value_info("observations", kind, ["N", *observations.shape[1:]])],
            [
                helper.make_tensor_value_info(shows, TensorProto.FLOAT, ["N", first.shape[-1]]),
                helper.make_tensor_value_info("value", TensorProto.FLOAT, ["N"]),
            ],
            self.weights,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        proto = helper.make_model(graph, producer_name="a2c", opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(proto, full_check=True)
        return proto


def _input(graph: _Graph, layer: Any) -> str:
    x = graph.add("Cast", "observations", to=TensorProto.FLOAT)
    return graph.add("Transpose", x, perm=TO_CHANNELS_FIRST) if len(layer.output.shape) == 4 else x


def _pixels(graph: _Graph, layer: PixelsToFloats, x: str) -> str:
    _, height, _, channels = layer.input.shape
    if height < channels:  # the smaller outer axis is the channels: they were first already
        x = graph.add("Transpose", x, perm=TO_CHANNELS_LAST)
    x = graph.add("Mul", x, graph.weight(1 / 255))
    if not layer.standardized:
        return x
    axes = graph.weight([1, 2, 3], np.int64)
    x = graph.add("Sub", x, graph.add("ReduceMean", x, axes))
    variance = graph.add("ReduceMean", graph.add("Mul", x, x), axes)
    return graph.add("Div", x, graph.add("Sqrt", graph.add("Add", variance, graph.weight(1e-4))))


def _convolution(graph: _Graph, layer: keras.layers.Conv2D, x: str) -> str:
    weights = layer.frame_kernel() if isinstance(layer, MotionConv2D) else layer.kernel
    kernel = graph.weight(np.transpose(weights, (3, 2, 0, 1)))
    padding = {"valid": "VALID", "same": "SAME_UPPER"}[layer.padding]
    return graph.add("Conv", x, kernel, strides=layer.strides, auto_pad=padding)


def _bias(graph: _Graph, layer: Bias, x: str) -> str:
    return graph.add("Add", x, graph.weight(np.reshape(layer.bias, (-1, 1, 1))))


def _max_pool(graph: _Graph, layer: MaxPool, x: str) -> str:
    return graph.add("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER")


def _flatten(graph: _Graph, layer: keras.layers.Flatten, x: str) -> str:
    if len(layer.input.shape) == 4:
        x = graph.add("Transpose", x, perm=TO_CHANNELS_LAST)
    return _reshape(graph, layer, x)


def _reshape(graph: _Graph, layer: Any, x: str) -> str:
    return graph.add("Reshape", x, graph.weight([-1, *layer.output.shape[1:]], np.int64))


def _dense(graph: _Graph, layer: keras.layers.Dense, x: str) -> str:
    return graph.add("Gemm", x, graph.weight(layer.kernel), graph.weight(layer.bias))


def _activation(graph: _Graph, layer: keras.layers.Activation, x: str) -> str:
    return graph.add("Tanh", x) if layer.activation is TANH else x


def _softmax(graph: _Graph, shows: str, logits: str, value: str) -> None:
    graph.add("Softmax", logits, axis=-1, output=shows)
    graph.add("Identity", value, output="value")


def _identity(graph: _Graph, shows: str, q_values: str, _: str) -> None:
    graph.add("Identity", q_values, output=shows)
    graph.add("ReduceMax", q_values, graph.weight([1], np.int64), keepdims=0, output="value")


def _duelling(graph: _Graph, shows: str, advantages: str, value: str) -> None:
    axis = graph.weight([1], np.int64)
    centred = graph.add("Sub", advantages, graph.add("ReduceMean", advantages, axis))
    _identity(graph, shows, graph.add("Add", graph.add("Unsqueeze", value, axis), centred), "")


_HEADS: dict[Head, Callable[..., None]] = {"softmax": _softmax, "identity": _identity, "duelling": _duelling}
_WRITERS: dict[type, Callable[..., str]] = {
    keras.layers.InputLayer: _input,
    PixelsToFloats: _pixels,
    keras.layers.Conv2D: _convolution,
    MotionConv2D: _convolution,
    Bias: _bias,
    MaxPool: _max_pool,
    keras.layers.Flatten: _flatten,
    keras.layers.Reshape: _reshape,
    keras.layers.Dense: _dense,
    keras.layers.Activation: _activation,
    keras.layers.ReLU: lambda graph, layer, x: graph.add("Relu", x),
    keras.layers.Add: lambda graph, layer, x, y: graph.add("Add", x, y),
}
