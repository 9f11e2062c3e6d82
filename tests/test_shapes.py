"""The check at the door of the maths: what it lets in, what it refuses, and how clearly it says so."""

import numpy as np
import pytest
import tensorflow as tf

from a2c.shapes import check_shapes


def test_arrays_of_the_same_shape_pass_whatever_their_kind():
    check_shapes("f", 2, numpy=np.zeros((5, 3)), tensor=tf.zeros((5, 3)), integers=np.zeros((5, 3), np.int32))
    check_shapes("f", 0, scalar=np.float32(1.0))


def test_a_wrong_rank_names_function_argument_rank_and_all_shapes():
    with pytest.raises(ValueError) as error:
        check_shapes("some_function", 1, log_probs=np.zeros(4), advantages=np.zeros((4, 1)))
    assert str(error.value) == (
        "some_function: advantages must have rank 1, got shape (4, 1); all shapes: log_probs (4,), advantages (4, 1)"
    )


def test_the_first_argument_is_checked_for_its_rank_too():
    with pytest.raises(ValueError, match=r"^f: rewards must have rank 2, got shape \(4,\)"):
        check_shapes("f", 2, rewards=np.zeros(4), values=np.zeros((4, 1)))


def test_unequal_shapes_name_both_arguments_and_both_shapes():
    with pytest.raises(ValueError) as error:
        check_shapes("some_function", 2, rewards=np.zeros((5, 3)), ends=np.zeros((5, 3)), values=np.zeros((3, 5)))
    assert str(error.value) == (
        "some_function: rewards has shape (5, 3) but values has shape (3, 5); "
        "they must be the same, nothing is broadcast"
    )


@pytest.mark.parametrize("shape", [(1, 3), (5, 1), (1, 1)])
def test_a_size_of_one_is_not_stretched(shape):
    with pytest.raises(ValueError, match="nothing is broadcast"):
        check_shapes("f", 2, a=np.zeros((5, 3)), b=np.zeros(shape))


def test_the_check_is_static_and_leaves_no_operation_in_a_graph():
    graph = tf.Graph()
    with graph.as_default():
        a, b = tf.zeros((5, 3)), tf.ones((5, 3))
        before = len(graph.get_operations())
        check_shapes("f", 2, a=a, b=b)
        assert len(graph.get_operations()) == before
        with pytest.raises(ValueError, match=r"a has shape \(5, 3\) but b has shape \(3, 5\)"):
            check_shapes("f", 2, a=a, b=tf.transpose(b))
