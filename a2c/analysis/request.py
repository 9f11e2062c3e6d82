"""The options of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a2c.analysis.jobs import MACHINE, Place
from a2c.analysis.statistics import MIN_SEEDS
from a2c.config import Config, load_config
from a2c.run.view import View

# they cost time and do not affect the comparison
FORCED = {"evaluation.episodes": 0, "logging.trackers": [], "logging.histograms": False}


@dataclass(frozen=True)
class Request:
    """The options of a comparison, whatever its kind."""

    envs: tuple[str, ...] = ()
    config: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    assignments: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()  # added to those of each configuration
    seeds: int = MIN_SEEDS
    threshold: float | None = None
    updates: int = 50  # of the lock-step parts
    jobs: int = 1  # processes at a time
    place: Place = MACHINE  # where they run
    folder: Path | None = None
    view: View = field(default_factory=View)
    tell: Callable[[str], None] = lambda text: None  # see `load_config`; told the same by every arm
    warn: Callable[[str], None] = lambda text: None  # see `converge`

    def load(
        self, *, env: str | None = None, config: str | None = None, also: Mapping[str, Any] | None = None
    ) -> Config:
        """A configuration with everything that only costs time switched off; `also` are more dotted keys."""
        values = {**self.overrides, **(also or {}), **FORCED}
        config = self.config if config is None else config
        return load_config(
            config=config,
            env_id=env,
            overrides=values,
            assignments=self.assignments,
            wrappers=self.wrappers,
            tell=self.tell,
        )[0]
