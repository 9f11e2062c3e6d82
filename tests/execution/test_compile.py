"""Compiled functions: one trace, called as an operation, in the calling thread."""

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from a2c.config import RuntimeConfig
from a2c.data.collector import aligned
from a2c.execution import runtime
from a2c.execution.compile import Compiled

pytestmark = pytest.mark.usefixtures("exact_numerics")


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_a_function_is_traced_when_it_is_first_called_and_never_again(mode):
    traces = []

    def double(x: tf.Tensor) -> tf.Tensor:
        traces.append(x)
        return 2 * x

    execute = Compiled(double, mode, tf.TensorSpec((None,), tf.float32))
    assert traces == []
    assert [execute(np.ones(n, np.float32)).numpy().sum() for n in (3, 4, 3)] == [6, 8, 6]
    execute.trace()
    assert len(traces) == 1
    assert execute._trace.function_def.attr["_XlaMustCompile"].b is (mode == "xla")


def test_threads_that_call_it_at_a_time_share_one_trace():
    traces, started = [], threading.Barrier(4)

    def double(x: tf.Tensor) -> tf.Tensor:
        traces.append(x)
        return 2 * x

    execute = Compiled(double, "graph", tf.TensorSpec((), tf.float32), as_operation=True)

    def call() -> None:
        started.wait()
        assert execute(np.float32(3)).numpy() == 6

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traces) == 1


@pytest.mark.parametrize(("as_operation", "gpu"), [(True, False), (False, False), (True, True)])
def test_an_operation_runs_in_the_calling_thread(as_operation, gpu, monkeypatch):
    """There it meets the caches of what the thread did before, and nobody has to be woken."""

    def where(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda zero: zero + threading.get_native_id(), [0 * tf.reduce_sum(x)], tf.float64)

    monkeypatch.setattr("a2c.execution.compile.sees_gpu", lambda: gpu)
    execute = Compiled(where, "graph", tf.TensorSpec((None,), tf.float64), as_operation=as_operation)
    in_the_calling_thread = {bool(execute(np.ones(n)).numpy() == threading.get_native_id()) for n in (3, 4, 3)}
    assert in_the_calling_thread == {as_operation and not gpu}


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_an_operation_is_rewritten_as_a_function_is(numerics):
    """Grappler turns the division into a product, unless numerics are exact."""

    def third(x: tf.Tensor) -> tf.Tensor:
        return x / 3.0

    x = np.random.default_rng(1).random(10_000, np.float32)
    runtime.setup(RuntimeConfig(numerics=numerics))
    operation, function = (
        Compiled(third, "graph", tf.TensorSpec(x.shape, tf.float32), as_operation=how)(x).numpy()
        for how in (True, False)
    )
    np.testing.assert_array_equal(operation, function)
    assert (operation == x / np.float32(3)).all() == (numerics == "exact")


def test_an_error_in_an_operation_says_in_which():
    def pick(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, tf.cast(x[0], tf.int32))

    execute = Compiled(pick, "graph", tf.TensorSpec((2,), tf.float32), as_operation=True)
    assert execute(np.float32([1, 5])).numpy() == 5
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"9 is not in \[0, 2\).*pick"):
        execute(np.float32([9, 5]))


def in_place(array: np.ndarray) -> np.ndarray:
    """At an address that suits TensorFlow, so that it makes no copy."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def test_an_operation_reads_arrays_where_they_are():
    """What is returned as it was given is seen to be the same memory."""
    operation, function = (
        Compiled(tf.identity, "graph", tf.TensorSpec((None,), tf.float32), as_operation=how) for how in (True, False)
    )
    array = in_place(np.zeros(100, np.float32))
    read, copied = operation(array), function(array)
    array[:] = 7
    assert (read.numpy() == 7).all()
    assert (copied.numpy() == 0).all()


def test_inputs_that_fit_do_not_admit_others():
    execute = Compiled(lambda x, y: x + y, "graph", *[tf.TensorSpec((None,), tf.float32)] * 2, as_operation=True)
    two, doubles = np.ones(2, np.float32), np.ones(2)
    for _ in range(2):
        np.testing.assert_array_equal(execute(two, two), [2, 2])
        with pytest.raises(ValueError, match=r"^expected float32 \(None,\), not float64 \(2,\)$"):
            execute(two, doubles)
        with pytest.raises(ValueError, match=r"^expected 2 tensors \(\), not 1$"):
            execute(two)


class Pair(NamedTuple):
    z: tf.Tensor
    a: tf.Tensor


STRUCTURES = {
    "a tensor": lambda x: x,
    "a tuple": lambda x: (x, 2 * x),
    "a dict": lambda x: {"z": x, "a": (2 * x, 3 * x)},
    "an ordered dict": lambda x: OrderedDict(z=x, a=2 * x),
    "a named tuple": lambda x: Pair({"q": x, "b": 2 * x}, 3 * x),
    "nothing": lambda x: {},
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_an_operation_returns_the_structure_of_its_function(structure):
    function, x = STRUCTURES[structure], np.float32([1, 2])
    found = Compiled(function, "graph", tf.TensorSpec((2,), tf.float32), as_operation=True)(x)
    wanted = function(tf.constant(x))
    tf.nest.assert_same_structure(found, wanted)
    for own, right in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_array_equal(own, right)


def test_arrays_may_lie_anyhow_in_memory():
    execute = Compiled(tf.square, "graph", tf.TensorSpec((None, 2), tf.float32), as_operation=True)
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    odd = np.empty(table.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)
    odd[:] = table
    for x in (table[:, ::2], table[::-1, 1:3], odd[:, :2], table[:0, :2], table.T[:, :2]):
        np.testing.assert_array_equal(execute(x), np.square(x))
