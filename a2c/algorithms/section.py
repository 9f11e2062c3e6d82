"""What the sections of all algorithms have in common: promises, metrics and settings. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field

from a2c.types import NUMBER, Probability, Section


class Promises(NamedTuple):
    """Guarantees for every run of an algorithm; `train`, `resume`, `compare` and `doctor` tell which do not hold."""

    exact: bool = True  # the same seed gives the same bits, and so does a resumed run
    modes: bool = True  # eager and graph execution give the same bits
    workers: bool = True  # several workers make the same updates as one with all their environments


class Metric(NamedTuple):
    """A scalar that an update reports."""

    name: str  # in metrics.jsonl
    label: str  # for display, with its unit
    group: str = "losses"  # of TensorBoard's tags
    form: str = ".4f"  # in the live view
    plotted: bool = True


# the terms of every actor-critic loss, the fit of the values, and the metrics of every gradient step
LOSSES = (
    Metric("policy_loss", "policy loss", form="+.4f"),
    Metric("value_loss", "value loss"),
    Metric("entropy", "entropy (nats)", form=".3f"),
    Metric("total_loss", "total loss", plotted=False),
)
EXPLAINED_VARIANCE = Metric("explained_variance", "explained variance", form=".2f")
STEP = (
    Metric("grad_norm", "gradient norm before clipping", "optimizer"),
    Metric("learning_rate", "learning rate", "optimizer", ".2g", plotted=False),
)

Length = Annotated[int, Field(ge=1, le=4096), NUMBER]


class AlgorithmSection(Section):
    """The settings of every algorithm; each adds its own."""

    IMPLEMENTATION: ClassVar[str]  # module:Class of an `Algorithm`; imported when it is built
    TITLE: ClassVar[str]  # its name and source
    METRICS: ClassVar[tuple[Metric, ...]]  # reported by an update, in the order shown
    PROMISES: ClassVar[Promises] = Promises()
    SEPARATE_VALUE: ClassVar[bool] = False  # whether it needs model.separate_value
    BOOTSTRAPS: ClassVar[bool] = True  # whether it values the observation after each rollout
    HEAD: ClassVar[str] = "logits of a policy"  # what the first head of its network gives, in words
    BONUS: ClassVar[str] = ""  # what its values count besides rewards, in words
    SPACE: ClassVar[Mapping[str, Any]] = {}  # what `a2c tune` varies if no file says it, in the form of such a file

    name: str
    """The algorithm; it decides which other keys this section has."""
    rollout_length: Length = 5
    """T: steps of each environment that are collected before something is learned."""
    gamma: Probability = 0.99
    """The discount of one step [zoo], [a3c]."""

    @property
    def rollouts_per_update(self) -> int:
        """Rollouts of all environments in one update."""
        return 1

    def outputs(self, num_actions: int) -> int:
        """Outputs of the first head of its network.

        Args:
            num_actions: A.
        """
        return num_actions

    def passes(self, num_envs: int) -> float:
        """Forward and backward passes through the network per agent step in an update; `a2c bench` counts them.

        Args:
            num_envs: B.
        """
        return 1.0

    def warmed_up(self) -> Self:
        """The settings with which it learns from the first update on, to be timed or compared."""
        return self

    def groups(self, num_envs: int, cores: int) -> int | None:
        """Number of groups of equal size that the environments are split into; None = `parts_of` decides.

        Args:
            num_envs: B.
            cores: number of cores that the run may use.
        """
        return None

    def check(self, env_steps: int, rollout: str) -> None:
        """Raise ValueError if an update of `env_steps` agent steps, described by `rollout`, is impossible."""
