"""Where runs are trained: here, or on a Ray cluster."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a2c.analysis.jobs import Place


def place_of(cluster: str | None) -> Place:
    """The place that --cluster names."""
    if cluster is None:
        return import_module("a2c.analysis.jobs").MACHINE  # type: ignore[no-any-return]
    return import_module("a2c.analysis.ray_jobs").RayCluster(cluster)  # type: ignore[no-any-return]
