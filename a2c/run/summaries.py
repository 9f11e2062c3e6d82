"""TensorBoard summaries besides scalars: a run's configuration, in the table of runs and as text; histograms.

tensorboard's own functions for them need TensorFlow or the memory of 30 copies; these build the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram import metadata as histograms
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util.tensor_util import make_tensor_proto

BUCKETS = 30  # as TensorBoard's own histograms have


def config_summary(config: Mapping[str, Any], scores: Sequence[str]) -> Any:
    """The summary that makes a run a row of TensorBoard's HParams tab, and its configuration a text.

    Args:
        config: dotted keys to plain values.
        scores: tags of scalars, shown as columns beside the configuration.
    """
    values = {key: _plain(value) for key, value in config.items()}
    experiment = api_pb2.Experiment(
        hparam_infos=[api_pb2.HParamInfo(name=key, type=_type(value)) for key, value in values.items()],
        metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in scores],
    )
    start = SessionStartInfo()
    for key, value in values.items():
        _set(start.hparams[key], value)
    summary = text_pb("config", "".join(f"    {key}: {value}\n" for key, value in values.items()))  # code in Markdown
    for tag, data in (
        (hparams.EXPERIMENT_TAG, HParamsPluginData(experiment=experiment)),
        (hparams.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
    ):
        summary.value.add(tag=tag, metadata=hparams.create_summary_metadata(data), tensor=hparams.NULL_TENSOR)
    return summary


def histogram_summary(arrays: Mapping[str, np.ndarray]) -> Any:
    """A histogram of the finite values of each array, under its tag; arrays without any are left out."""
    summary = Summary()
    metadata = histograms.create_summary_metadata(display_name=None, description=None)
    for tag, array in arrays.items():
        values = array[np.isfinite(array)].astype(np.float64)
        if not values.size:
            continue
        counts, _ = np.histogram(values, BUCKETS)
        edges = np.linspace(values.min(), values.max(), BUCKETS + 1)  # numpy's own, if not all values are equal
        rows = np.stack([edges[:-1], edges[1:], counts], axis=1)
        summary.value.add(tag=tag, metadata=metadata, tensor=make_tensor_proto(rows))
    return summary


def _plain(value: Any) -> bool | float | str:
    """A truth value, a number or a text, the three kinds that TensorBoard knows."""
    return value if isinstance(value, (bool, int, float, str)) else "null" if value is None else str(value)


def _type(value: bool | float | str) -> Any:
    kinds = {bool: api_pb2.DATA_TYPE_BOOL, str: api_pb2.DATA_TYPE_STRING}
    return kinds.get(type(value), api_pb2.DATA_TYPE_FLOAT64)


def _set(field: Any, value: bool | float | str) -> None:
    names = {bool: "bool_value", str: "string_value"}
    setattr(field, names.get(type(value), "number_value"), value)
