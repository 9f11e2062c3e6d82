"""Where eager and graph execution diverge, and how far: the same updates in both, compared bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, build_algorithm
from a2c.algorithms.gradient_step import Batch, Metrics, Step
from a2c.config import Config
from a2c.data.collector import build_collector
from a2c.data.rollout import Rollout
from a2c.envs import make_env_groups
from a2c.execution.compile import Compiled
from a2c.execution.runtime import parts_of
from a2c.reading import open_regular
from a2c.run.files import replacing

Tamper = Callable[[str, Any], Any]  # (stage, value) -> the value that the update continues with


@dataclass(frozen=True)
class Difference:
    """The difference of one named array between two executions."""

    stage: str
    elements: int
    differing: int  # elements whose bits differ
    max_ulps: int  # the largest distance, counted in representable numbers
    max_abs: float


@dataclass(frozen=True)
class Where:
    """The first update whose results differ between eager and graph, stage by stage in the order of computation."""

    update: int | None  # counted from 1; None if all agree, then `stages` are those of the first update
    updates: int  # that were run
    first: str | None  # the first stage that differs
    stages: tuple[Difference, ...]
    differing_variables: tuple[str, ...]  # after that update, if no stage is read
    # weights and slots that the graph computes differently if its stages are read: reading can prevent a rewrite
    changed_by_observing: tuple[str, ...]


@dataclass(frozen=True)
class Agreement:
    """How many variables (weights and optimizer) are equal bit for bit after some updates."""

    updates: int
    variables: int
    equal_after_one: int
    equal: int

    @property
    def complete(self) -> bool:
        """Whether all agree."""
        return self.equal_after_one == self.equal == self.variables


@dataclass(frozen=True)
class Distance:
    """The distance of one group of variables after one update."""

    relative: float  # |graph - eager| / |eager|, Euclidean norms over the whole group
    max_abs: float


def record(config: Config, updates: int) -> list[Rollout]:
    """The first `updates` rollouts of the run that `config` describes."""
    with make_env_groups(config.env, seed=config.seed, groups=parts_of(config)) as envs:
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        collector = build_collector(config, envs, algorithm.behaviour)
        rollouts = []
        for number in range(updates):
            rollout, _ = collector.collect()
            algorithm.update(rollout, number)
            rollouts.append(rollout)
    return rollouts


def save_rollouts(path: Path, rollouts: Sequence[Rollout]) -> None:
    """Write rollouts as one compressed .npz."""
    arrays = {f"{i}/{name}": x for i, rollout in enumerate(rollouts) for name, x in rollout.arrays().items()}
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_rollouts(path: Path, updates: int) -> list[Rollout]:
    """The first `updates` rollouts that `save_rollouts` wrote."""
    with open_regular(path, 2**40) as stream, np.load(stream, allow_pickle=False) as file:
        numbered = [(*name.split("/", 1), name) for name in file.files]
        return [
            Rollout.of_arrays({inner: file[name] for number, inner, name in numbered if number == str(i)})
            for i in range(updates)
        ]


def find_where(eager: Algorithm, graph: Algorithm, rollouts: Iterable[Rollout], tamper: Tamper | None = None) -> Where:
    """Find the first stage of the first update at which two executions of an algorithm differ.

    Both update on the same rollouts. If their variables differ after an update, it is repeated from the weights before
    it, and every stage is read.

    Args:
        eager, graph: with equal variables; `graph` is compiled.
        rollouts: one for each update.
        tamper: changes values of the graph's stages, to test this function.
    """
    first_update: tuple[Any, ...] | None = None
    updates = 0
    for updates, rollout in enumerate(rollouts, 1):
        before = _state(eager), _state(graph)
        eager.update(rollout, updates - 1)
        graph.update(rollout, updates - 1)
        first_update = first_update or (rollout, before)
        differing = differing_names(snapshot(eager), snapshot(graph))
        if differing:
            return _look_closer(eager, graph, rollout, before, tamper, updates, differing)
    if first_update is None:
        raise ValueError("find_where needs at least one rollout")
    rollout, before = first_update
    return _look_closer(eager, graph, rollout, before, tamper, updates, [])


class _State(NamedTuple):
    """All that determines what an algorithm makes of a rollout."""

    variables: dict[str, np.ndarray]
    memory: dict[str, np.ndarray]


def _state(algorithm: Algorithm) -> _State:
    return _State(snapshot(algorithm), {} if algorithm.memory is None else algorithm.memory.state())


def _go_back(algorithm: Algorithm, state: _State) -> None:
    """To a state at the start of an update; the rows that the update remembered since are written again by the next."""
    restore(algorithm, state.variables)
    if algorithm.memory is not None:
        algorithm.memory.restore(state.memory)


def _look_closer(
    eager: Algorithm,
    graph: Algorithm,
    rollout: Rollout,
    before: tuple[_State, _State],
    tamper: Tamper | None,
    updates: int,
    differing: list[str],
) -> Where:
    """Repeat the last update if it differs, else the first, and read every stage."""
    made = updates - 1 if differing else 0
    _go_back(graph, before[1])
    graph.update(rollout, made)
    unobserved = snapshot(graph)
    _go_back(eager, before[0])
    _go_back(graph, before[1])
    of_eager = observe(eager, rollout, made, "eager")
    of_graph = observe(graph, rollout, made, "graph", tamper)
    stages = tuple(compare_arrays(name, of_eager[name], of_graph[name]) for name in of_eager)
    return Where(
        update=updates if differing else None,
        updates=updates,
        first=next((stage.stage for stage in stages if stage.differing), None),
        stages=stages,
        differing_variables=tuple(differing),
        changed_by_observing=() if tamper else tuple(differing_names(unobserved, snapshot(graph))),
    )


def observe(
    algorithm: Algorithm, rollout: Rollout, updates: int, mode: str, tamper: Tamper | None = None
) -> dict[str, np.ndarray]:
    """Update once and return every named stage, in the order of computation; then the variables.

    From the second gradient step on, the names of stages begin with the step's number.

    Args:
        algorithm: is updated.
        rollout: to learn from.
        updates: number of updates made before.
        mode: eager or graph.
        tamper: replaces a stage's value.
    """
    seen: dict[str, np.ndarray] = {}
    watched = {name: _Watched(step, mode, tamper, seen) for name, step in algorithm.steps.items()}
    algorithm.update(rollout, updates, watched)
    variables = snapshot(algorithm)
    if tamper:
        variables = {name: np.asarray(tamper(name, value)) for name, value in variables.items()}
    return {**seen, **variables}


class _Watched:
    """A gradient step that puts every named stage into `seen`."""

    def __init__(self, step: Step, mode: str, tamper: Tamper | None, seen: dict[str, np.ndarray]) -> None:
        self.step = step
        self.tamper = tamper
        self.seen = seen
        self.order: list[str] = []  # tf.function returns dictionaries sorted
        self.calls = 0
        self.compiled = Compiled(self._staged, mode, step.signature)

    def __call__(self, batch: Batch) -> Metrics:
        stages, metrics = self.compiled(batch)
        self.calls += 1
        for name in self.order:
            self.seen[name if self.calls == 1 else f"{self.calls}: {name}"] = stages[name].numpy()
        return metrics  # type: ignore[no-any-return]

    def _staged(self, batch: Batch) -> tuple[dict[str, tf.Tensor], Metrics]:
        stages: dict[str, tf.Tensor] = {}

        def tap(name: str, tensor: tf.Tensor) -> tf.Tensor:
            stages[name] = self.tamper(name, tensor) if self.tamper else tensor
            return stages[name]

        metrics = self.step.apply(batch, tap)
        self.order.extend(name for name in stages if name not in self.order)
        return stages, metrics


def agree(eager: Algorithm, graph: Algorithm, rollouts: Iterable[Rollout]) -> Agreement:
    """Count the variables that are equal after the first update and after the last."""
    equal: list[int] = []
    for number, rollout in enumerate(rollouts):
        eager.update(rollout, number)
        graph.update(rollout, number)
        variables = snapshot(eager)
        equal.append(len(variables) - len(differing_names(variables, snapshot(graph))))
    return Agreement(updates=len(equal), variables=len(variables), equal_after_one=equal[0], equal=equal[-1])


def growth(eager: Algorithm, graph: Algorithm, rollouts: Iterable[Rollout]) -> list[dict[str, Distance]]:
    """The distance of the weights and of each kind of optimizer slot after each of the same updates."""
    distances = []
    for number, rollout in enumerate(rollouts):
        eager.update(rollout, number)
        graph.update(rollout, number)
        ours, theirs = variable_groups(eager), variable_groups(graph)
        distances.append({name: distance(ours[name], theirs[name]) for name in ours})
    return distances


def variable_groups(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Weights, other networks by name, and the optimizers' slots by kind (momentum, velocity), each as one vector."""
    groups: dict[str, list[np.ndarray]] = {}
    for name, variables in algorithm.variables.items():
        for variable in variables:
            if len(variable.shape) > 0:
                group = variable.name.rpartition("_")[2] if name.endswith("optimizer") else name
                groups.setdefault("weights" if name == "model" else group, []).append(variable.numpy())
    return {name: np.concatenate([array.ravel() for array in arrays]) for name, arrays in groups.items()}


def distance(first: np.ndarray, second: np.ndarray) -> Distance:
    """The distance of two vectors, in float64."""
    difference = second.astype(np.float64) - first
    norm = np.linalg.norm(first.astype(np.float64))
    apart = float(np.linalg.norm(difference))
    relative = apart / norm if norm else math.inf if apart else 0.0
    return Distance(float(relative), float(np.abs(difference).max()))


def snapshot(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Copies of the optimizers' slots, then of the weights, under names that do not depend on the process."""
    return {name: variable.numpy() for name, variable in _named_variables(algorithm)}


def restore(algorithm: Algorithm, values: dict[str, np.ndarray]) -> None:
    """Restore what `snapshot` copied."""
    for name, variable in _named_variables(algorithm):
        variable.assign(values[name])


def _named_variables(algorithm: Algorithm) -> list[tuple[str, Any]]:
    groups = dict(algorithm.variables)
    weights = [(f"weight {weight.path}", weight) for weight in groups.pop("model")]
    slots = [(f"slot {slot.name}", slot) for slot in groups.pop("optimizer", [])]
    others = [(f"{name} {i}: {v.name}", v) for name, group in groups.items() for i, v in enumerate(group)]
    return [*slots, *others, *weights]


def differing_names(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> list[str]:
    """The names of the arrays whose bits differ."""
    return [name for name in first if first[name].tobytes() != second[name].tobytes()]


def compare_arrays(stage: str, first: np.ndarray, second: np.ndarray) -> Difference:
    """Compare two arrays of one shape and type, element by element."""
    ulps = ulp_distance(first, second)
    gap = np.abs(second.astype(np.float64) - first.astype(np.float64))
    return Difference(
        stage=stage,
        elements=first.size,
        differing=int(np.count_nonzero(ulps)),
        max_ulps=int(ulps.max(initial=0)),
        max_abs=float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0, where=ulps > 0)),
    )


def ulp_distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How many representable numbers the elements lie apart: 1 for neighbours, 0 for equal bits.

    Floats of at most 32 bits are ordered by their bits, negative ones downwards; -0 and +0 are 1 apart, so that
    0 means the same bits. For integers and booleans it is their difference. Returns int64, of the arrays' shape.

    Raises:
        ValueError: if shapes or types differ.
    """
    if first.shape != second.shape or first.dtype != second.dtype:
        raise ValueError(
            f"ulp_distance: {first.dtype} {first.shape} cannot be compared with {second.dtype} {second.shape}"
        )
    distance: np.ndarray = np.abs(_ordered(first) - _ordered(second))
    return distance


def _ordered(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    bits = array.view(f"i{array.dtype.itemsize}").astype(np.int64)
    lowest = -(2 ** (8 * array.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits - 1, bits)
