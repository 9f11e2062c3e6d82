"""The interface between an algorithm and the rest of the program."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from a2c.algorithms.gradient_step import Batch, GradientStep, Metrics, Step
from a2c.algorithms.policy import Policy
from a2c.algorithms.sections import ReplaySection
from a2c.config import Config, UserError
from a2c.data.collector import RolloutCollector
from a2c.data.rollout import Episode, Rollout
from a2c.execution.compile import Compiled
from a2c.execution.replicas import ALONE, Replicas
from a2c.extensions import as_user_error, find_extension, is_extension

Batches = Generator[tuple[str, Batch], Metrics, None]


class Update(NamedTuple):
    """The result of one update."""

    metrics: Metrics  # means over its gradient steps, by the names of `AlgorithmSection.METRICS`
    gradient_steps: int  # number of applied steps
    failed: tuple[str, Batch] | None = None  # the gradient step (see `steps`) that was not finite, so not applied


class Iteration(NamedTuple):
    """The result of one round of the loop: a rollout and an update."""

    update: Update
    episodes: list[tuple[int, Episode]]  # whole games that ended, each with its row of the rollout


class Memory(Protocol):
    """What an algorithm keeps of earlier rollouts, too large to be in every checkpoint: rows, numbered from 0.

    A row is what you like, such as a time step or a transition. It never changes; those before `first` are forgotten.
    Everything else is the state, such as episodes that have not ended; it is small, and its arrays may change their
    shapes. What is kept of a rollout must be copied.
    """

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        ...

    @property
    def total(self) -> int:
        """Rows that were added so far."""
        ...

    @property
    def first(self) -> int:
        """The oldest row that is needed."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """All but the rows, as arrays of numbers."""
        ...

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take back what `state` returned; the rows up to then must be there, or be written next.

        Raises:
            ValueError, KeyError: if it does not fit.
        """
        ...

    def read(self, first: int, end: int) -> dict[str, np.ndarray]:
        """The rows from `first` to before `end`, as arrays of numbers; at least one has `end - first` rows."""
        ...

    def write(self, first: int, end: int, rows: Mapping[str, np.ndarray]) -> None:
        """Take back what `read` returned; the rows before come first. Errors as for `restore`."""
        ...


class Algorithm(ABC):
    """Learns from rollouts. Its title, metrics and promises are in its section.

    Attributes:
        policy: acts in the environments.
        steps: its compiled steps, by name.
        variables: all that changes from update to update and is not a function of their number, in named lists; saved
            in checkpoints. The policy needs only "model".
        networks: the names in `variables` of its other networks; `--init-from` takes them too, from a run of the same
            algorithm.
        memory: what it keeps of earlier rollouts, if it does; saved beside the checkpoints.
        traced: compiled functions that every round calls besides those of `learning` and the policies' `explore`.
    """

    policy: Policy
    steps: Mapping[str, Step]
    variables: dict[str, Sequence[Any]]
    networks: Sequence[str] = ()
    memory: Memory | None = None
    traced: Sequence[Compiled] = ()

    @abstractmethod
    def __init__(self, config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> None:
        """Build it with fresh weights; arguments and errors as for `build_policy`."""

    @staticmethod
    @abstractmethod
    def build_policy(config: Config, space: Any, num_actions: int, replicas: Replicas = ALONE) -> Policy:
        """The policy alone, with fresh weights: enough to play.

        Args:
            config: of the run.
            space: Gymnasium Box of one observation.
            num_actions: A.
            replicas: where to build it.

        Raises:
            UserError: if the network does not fit the observations or the machine's memory.
        """

    @abstractmethod
    def batches(self, rollout: Rollout, updates: int) -> Batches:
        """The batches of a rollout, one gradient step after another.

        Args:
            rollout: of the current policy.
            updates: number of earlier updates, over all sessions; it seeds all randomness here.

        Yields:
            The name of a step (in `steps`) and its batch; the step's metrics are sent back, and may end the update.
            Those of each row, such as the errors that set priorities, are no metrics of the update.
        """

    def trace(self) -> None:
        """Trace all that every round calls, in the calling thread: those of the groups have one core each."""
        explorers = [policy.compiled["explore"] for policy in self.acting()]
        for compiled in (*explorers, *self.learning(), *self.traced):
            compiled.trace()

    @property
    def behaviour(self) -> Policy:
        """The policy that collects rollouts, always the same object; to be overridden if another is learned (V-MPO)."""
        return self.policy

    def acting(self) -> list[Policy]:
        """The policies that act in the environments: one, or one of each actor."""
        return [self.behaviour]

    def learning(self) -> list[Compiled]:
        """The compiled functions of the steps."""
        return [step.compiled for step in self.steps.values()]

    def iterate(self, collector: RolloutCollector, updates: int) -> Iteration:
        """One round of the loop: collect a rollout and learn from it."""
        rollout, episodes = collector.collect()
        update = _returned(self.update(rollout, updates), Update, "`update` returned a {}; return an Update")
        return Iteration(update, episodes)

    def update(
        self, rollout: Rollout, updates: int, steps: Mapping[str, Callable[[Batch], Metrics]] | None = None
    ) -> Update:
        """Make the gradient steps of `batches`; stop at one that is not finite, which is not applied.

        Args:
            rollout, updates: see `batches`.
            steps: the functions that make the steps, by name; default: the algorithm's own.
        """
        each: list[Metrics] = []
        batches = self.batches(rollout, updates)
        if not isinstance(batches, Generator):
            kind = type(batches).__name__
            raise TypeError(f"`batches` returned a {kind}; make it a generator, which yields each name and batch")
        try:
            name, batch = _checked(next(batches), self.steps)
            while True:
                metrics = (steps or self.steps)[name](batch)
                if not self.steps[name].is_finite(metrics):
                    return self._updated([metrics], len(each), failed=(name, batch))
                each.append(metrics)
                name, batch = _checked(batches.send(metrics), self.steps)
        except StopIteration:
            return self._updated(each, len(each))

    def _updated(self, each: Sequence[Metrics], gradient_steps: int, failed: tuple[str, Batch] | None = None) -> Update:
        gauges = _returned(self.gauges(), dict, "`gauges` returned a {}; return a dict")
        return Update({**means(each), **gauges}, gradient_steps, failed)

    def gauges(self) -> Metrics:
        """Metrics that are read once, after an update, such as the size of a replay."""
        return {}


def _checked(yielded: Any, steps: Mapping[str, Step]) -> tuple[str, Batch]:
    """Check that `batches` yielded the name of a step and its batch."""
    if not (isinstance(yielded, tuple) and len(yielded) == 2 and isinstance(yielded[0], str)):
        kind = type(yielded).__name__
        raise TypeError(f"`batches` yielded a {kind}; yield a tuple of two: the name of a step, and its batch")
    name, batch = yielded
    if name not in steps:
        raise ValueError(f"`batches` yielded the step {name!r}, and `steps` has {', '.join(steps)}")
    form = type(steps[name].signature)
    if not isinstance(batch, form):  # TensorFlow would flatten a dict by its keys, and swap fields of one shape
        raise TypeError(f"the batch of the step {name!r} is a {type(batch).__name__}; yield a {form.__name__}")
    return name, batch


def as_iteration(found: Any) -> Iteration:
    """The result of `iterate`, which a user's algorithm may override; raises TypeError if it is something else."""
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Update)):
        raise TypeError(f"`iterate` returned a {type(found).__name__}; return an Iteration of an Update and the games")
    return Iteration(*found)


def _returned(value: Any, kind: type, told: str) -> Any:
    """Check what a method returned, which a user's algorithm may override; raises TypeError if it is something else."""
    if not isinstance(value, kind):
        raise TypeError(told.format(type(value).__name__))
    return value


_GROUP = re.compile(r"(?!(meta|memory|segments|collector(-\d+)?)$)[^/]+")  # a checkpoint has the others itself
_NEEDED = ("policy", "steps", "variables")  # attributes of an `Algorithm` that have no default


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


def build_policy(config: Config, space: Any, num_actions: int) -> Policy:
    """See `Algorithm.build_policy`; what a user's own raises is a UserError."""
    with _user_code(config):
        return algorithm_class(config).build_policy(config, space, num_actions)


def build_algorithm(config: Config, space: Any, num_actions: int, *, replicas: Replicas = ALONE) -> Algorithm:
    """Build an algorithm; a user's own that lacks something is a UserError, and so is what its `__init__` raises."""
    name = config.algorithm.name
    with _user_code(config):
        algorithm = algorithm_class(config)(config, space, num_actions, replicas)
        _check_form(algorithm, name)
        _check_saved(algorithm, name)
    if isinstance(config.algorithm, ReplaySection) and algorithm.memory is None:
        raise UserError(f"{name} has no memory; set its replay as `self.memory`, else it is not saved.")
    return algorithm


def _user_code(config: Config) -> AbstractContextManager[None]:
    """Inside, what a user's own algorithm raises becomes a UserError; what ours raises is a bug, and stays as it is."""
    name = config.algorithm.name
    return as_user_error(f"{name} cannot be built") if is_extension(name) else nullcontext()


def _check_form(algorithm: Algorithm, name: str) -> None:
    """Check that the algorithm of this name has what it needs, in the form that is used."""
    if missing := [attribute for attribute in _NEEDED if not hasattr(algorithm, attribute)]:
        raise UserError(f"{name} has no {' and no '.join(missing)}, which its `__init__` has to set.")
    for attribute in ("steps", "variables"):
        if not isinstance(value := getattr(algorithm, attribute), Mapping):
            raise UserError(f"{name}: its `{attribute}` is a {type(value).__name__}, and has to be a dict, by name.")
    for step_name, step in algorithm.steps.items():
        if not isinstance(step, Step):
            raise UserError(f"{name}: its step {step_name!r} is a {type(step).__name__}; make it a GradientStep.")
    for group, listed in algorithm.variables.items():
        if not (isinstance(group, str) and group.isprintable() and _GROUP.fullmatch(group)):
            raise UserError(
                f"{name}: its `variables` cannot have the name {group!r}: a printable text without a / is allowed, and "
                "not meta, memory, segments, collector or collector-N, which a checkpoint has itself."
            )
        if not isinstance(listed, list | tuple):
            raise UserError(f"{name}: its `variables[{group!r}]` is a {type(listed).__name__}; make it a list.")
    needed = [] if algorithm.memory is None else [each for each in vars(Memory) if not each.startswith("_")]
    if absent := [attribute for attribute in needed if not hasattr(algorithm.memory, attribute)]:
        raise UserError(
            f"{name}: its memory is a {type(algorithm.memory).__name__} without {' and '.join(absent)}; it needs all "
            "that a2c.algorithms.algorithm.Memory has."
        )
    if lacking := [group for group in algorithm.networks if group not in algorithm.variables]:
        raise UserError(f"{name}: its `networks` name {lacking[0]!r}, which its `variables` lack.")


def _check_saved(algorithm: Algorithm, name: str) -> None:
    """Check that a checkpoint would have all that the algorithm of this name learns."""
    saved = [variable for group in algorithm.variables.values() for variable in group]
    if list(map(id, algorithm.variables.get("model", ()))) != list(map(id, algorithm.policy.model.variables)):
        raise UserError(
            f"{name}: its `variables` need a list named 'model', `policy.model.variables`: else other weights are "
            "played than were learned."
        )
    if other := [variable for variable in saved if not isinstance(variable, keras.Variable)]:
        raise UserError(f"{name}: its `variables` hold a {type(other[0]).__name__}; each has to be a keras.Variable.")
    known = set(map(id, saved))
    for attribute, value in vars(algorithm).items():
        if any(id(variable) not in known for variable in _held(value, set())):
            raise UserError(
                f"{name}: its `variables` lack self.{attribute}: a resumed run would not have it. A constant or a "
                "function of the update's number can be a tf.Variable, which need not be there."
            )
    for step_name, step in algorithm.steps.items():
        if not isinstance(step, GradientStep):
            continue
        changed = [*step.apply_to, *step.optimizer.variables]
        if lost := [variable for variable in changed if id(variable) not in known]:
            of_optimizer = any(variable is lost[0] for variable in step.optimizer.variables)
            what = "the variables of the optimizer" if of_optimizer else lost[0].path
            raise UserError(
                f"{name}: its `variables` lack {what}, which the step {step_name!r} changes: a resumed run would not "
                "have it."
            )


def _held(value: Any, seen: set[int]) -> list[keras.Variable]:
    """The variables of an attribute: itself, or those of a model, a policy, or a list or mapping of these.

    What is in `seen`, by its id, is left out: a policy may hold itself.
    """
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, keras.Variable):
        return [value]
    if isinstance(value, keras.Model):
        return list(value.variables)
    if isinstance(value, Policy):
        value = getattr(value, "__dict__", {})
    if isinstance(value, Mapping):
        value = list(value.values())
    return [variable for each in value for variable in _held(each, seen)] if isinstance(value, list | tuple) else []


def means(each: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over the gradient steps that report it; what is reported of each row is left out."""
    names = dict.fromkeys(name for metrics in each for name, metric in metrics.items() if not np.ndim(metric))
    if len(each) == 1:
        return {name: each[0][name] for name in names}
    return {name: tf.reduce_mean([metrics[name] for metrics in each if name in metrics]) for name in names}
