"""What an algorithm is to the rest of the program: the seam between learning and everything around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Self

import tensorflow as tf

from a2c.algorithms.gradient_step import Batch, Metrics, Step
from a2c.algorithms.policy import Policy
from a2c.config import Config, UserError
from a2c.data.collector import RolloutCollector
from a2c.data.rollout import Episode, Rollout
from a2c.execution.compile import Compiled
from a2c.execution.replicas import ALONE, Replicas
from a2c.extensions import find_extension

Batches = Generator[tuple[str, Batch], Metrics, None]


class Update(NamedTuple):
    """What came of one update."""

    metrics: Metrics  # means over its gradient steps, by the names of `AlgorithmSection.METRICS`
    gradient_steps: int  # that were applied
    failed: tuple[str, Batch] | None = None  # the gradient step (see `steps`) that was not finite, so not applied


class Iteration(NamedTuple):
    """What came of one round of the loop: a rollout and what was learned from it."""

    update: Update
    episodes: list[tuple[int, Episode]]  # whole games that ended, each with its row of the rollout


class Algorithm(ABC):
    """Learns from rollouts. What it says of itself (title, metrics, promises) stands in its section.

    Attributes:
        policy: acts.
        steps: its compiled steps, by what they do.
        variables: all that it has learned, in named lists; "model" is what its policy needs. They are saved.
        parts: every batch goes through the network in so many, see `parts_of`.
        traced: what every round calls besides these steps and the policy's `explore`.
    """

    policy: Policy
    steps: Mapping[str, Step]
    variables: dict[str, Sequence[Any]]
    parts: int
    traced: Sequence[Compiled] = ()

    @staticmethod
    @abstractmethod
    def build_policy(config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> Policy:
        """The policy alone, with fresh weights: all that playing needs.

        Args:
            config: of the run.
            space: Gymnasium Box of one observation.
            num_actions: A.
            replicas: on which it is to be.

        Raises:
            UserError: if the network does not fit the observations, or the machine's memory.
        """

    @classmethod
    @abstractmethod
    def build(cls, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> Self:
        """The algorithm of a configuration, with fresh weights; arguments and errors as of `build_policy`."""

    @abstractmethod
    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """What is learned from a rollout, gradient step by gradient step.

        Args:
            rollout: of the present policy.
            updates: that were made before this one, over all sessions: what is random here is a function of it.

        Yields:
            The name of a step (of `steps`) and its batch; its metrics are sent back, and may end it early.
        """

    def trace(self) -> None:
        """Trace what every round calls, now: else it would be done by the clock, in threads that have one core each."""
        for compiled in (
            self.policy.compiled["explore"],
            *(step.compiled for step in self.steps.values()),
            *self.traced,
        ):
            compiled.trace()

    def iterate(self, collector: RolloutCollector, updates: int) -> Iteration:
        """One round of the loop: collect a rollout and learn from it."""
        rollout, episodes = collector.collect()
        return Iteration(self.update(rollout, updates), episodes)

    def update(
        self, rollout: Rollout, updates: int, steps: Mapping[str, Callable[[Batch], Metrics]] | None = None
    ) -> Update:
        """Make all the gradient steps of `batches`, up to one that is not finite, and is not applied.

        Args:
            rollout, updates: see `batches`.
            steps: what makes them, by name; the algorithm's own by default.
        """
        each: list[Metrics] = []
        batches = self.batches(rollout, updates)
        try:
            name, batch = next(batches)
            while True:
                metrics = (steps or self.steps)[name](batch)
                if not self.steps[name].is_finite(metrics):
                    return Update(metrics, len(each), failed=(name, batch))
                each.append(metrics)
                name, batch = batches.send(metrics)
        except StopIteration:
            return Update(means(each), len(each))


def algorithm_class(config: Config) -> type[Algorithm]:
    """The class that `config.algorithm` names."""
    implementation = config.algorithm.IMPLEMENTATION
    if config.algorithm.name == implementation:  # a user's own
        own = find_extension(implementation, "algorithm")
        if not issubclass(own, Algorithm):
            raise UserError(
                f"{implementation} is no algorithm: it needs to be a subclass of a2c.algorithms.algorithm.Algorithm."
            )
        return own  # type: ignore[no-any-return]
    module, _, name = implementation.partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]


def build_algorithm(config: Config, space: Any, num_actions: int, *, replicas: Replicas = ALONE) -> Algorithm:
    """See `Algorithm.build`."""
    return algorithm_class(config).build(config, space, num_actions, replicas)


def means(each: Sequence[Metrics]) -> Metrics:
    """Of each metric over the gradient steps that report it."""
    if len(each) == 1:
        return each[0]
    names = dict.fromkeys(name for metrics in each for name in metrics)
    return {name: tf.reduce_mean([metrics[name] for metrics in each if name in metrics]) for name in names}
