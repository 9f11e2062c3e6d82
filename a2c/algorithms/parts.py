"""Batches as rows, cut into parts: one core works on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def as_rows(batch: tf.Tensor) -> tf.Tensor:
    """A batch [T, B, ...] as rows [T * B, ...]."""
    t, b, *row = batch.shape
    return tf.reshape(batch, [t * b, *row])


def in_parts(rows: tf.Tensor, parts: int) -> list[tf.Tensor]:
    """Split rows [N, ...] into `parts` parts of N / parts rows, in order."""
    if parts == 1:
        return [rows]
    cut = tf.split(tf.reshape(rows, [parts, -1]), parts)  # reshaped first: long rows are not copied
    return [tf.reshape(part, [-1, *rows.shape[1:]]) for part in cut]


def by_parts(function: Callable[[tf.Tensor], Any], rows: tf.Tensor, parts: int) -> Any:
    """The outputs of a function of rows, such as a network, computed in independent parts."""
    each = [function(part) for part in in_parts(rows, parts)]
    return tf.nest.map_structure(lambda *outputs: tf.concat(outputs, axis=0), *each)
