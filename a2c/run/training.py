"""train(): the loop. Collect a rollout, learn from it, and now and then log, evaluate and save."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from a2c.algorithms.algorithm import Algorithm, Update, as_iteration, build_algorithm
from a2c.algorithms.sections import section_named
from a2c.config import Config, UserError, build_config, dump_config, shown
from a2c.data.collector import RolloutCollector, build_collector
from a2c.envs import VecEnvGroups, is_native, make_env_groups
from a2c.evaluation.evaluate import EvalResult
from a2c.execution.machine import versions
from a2c.execution.replicas import Replicas, check_agreement, open_replicas
from a2c.execution.runtime import machine, parts_of, setup
from a2c.execution.signals import StopSignal
from a2c.extensions import register
from a2c.run.callbacks import Callback, Callbacks
from a2c.run.checkpoint import Checkpoints, Saved, check_network
from a2c.run.counters import Counters
from a2c.run.evaluator import Evaluator
from a2c.run.folder import (
    begin,
    open_folder,
    saving,
    starting_point,
    tell_of_another_machine,
    tell_of_fresh_networks,
    tell_of_other_inputs,
    write_config,
)
from a2c.run.games import Games
from a2c.run.incident import Incidents
from a2c.run.lock import FolderLock
from a2c.run.lookup import resume_command
from a2c.run.metrics import Record, Writers, make_record
from a2c.run.progress import Progress
from a2c.run.step_files import step_file
from a2c.run.stopwatch import Stopwatch

Warn = Callable[[str], None]


@dataclass(frozen=True)
class TrainSummary:
    """How a call of `train` ended."""

    run_dir: Path
    config: Config  # with the actual numbers of workers and replicas
    is_chief: bool  # else another worker has the folder, and reports
    counters: Counters
    record: Record | None  # the last line of metrics, None if there was nothing left to do
    evaluation: EvalResult | None
    signal: int | None  # the signal that stopped it early, if one did
    stopped_by: str | None  # the callback that stopped it early, if one did; other workers only know that one did


def train(
    config: Config,
    run_dir: str | Path,
    *,
    resume: bool = False,
    init_from: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    algorithm: type[Algorithm] | None = None,
    model: Callable[..., Any] | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> TrainSummary:
    """Train an agent.

    Args:
        config: everything that decides the run; with `resume` that of the run, except the FREE_KEYS of `run.folder`.
        run_dir: the run's folder; a new one, or with `resume` one that holds a checkpoint.
        resume: continue from the latest undamaged checkpoint of `run_dir`, with the same bits as if never stopped.
        init_from: a run or checkpoint whose network's weights a new run starts with, see `Checkpoints.start_from`.
        callbacks: told of the run's progress; they may stop or save it, see `run.callbacks`.
        algorithm: your own class, instead of the one that `config` names; the settings that both have are kept.
        model: your own function that builds the network, with the arguments of `build_model` except its first.
        progress: shows the run to the user; nothing by default.
        warn: called with a sentence for each damaged checkpoint that is skipped, if the run is not exact, and for each
            experiment tracker that fails.

    Raises:
        UserError: if the folder, the environment or the checkpoint does not allow it, another process works in the
            folder, a file or the output cannot be written, or an update is not finite (and `optimizer.on_nan` is
            "stop"), or a callback raised.
        CrashError: if anything else is raised in the loop; what is needed to repeat it is saved first.
    """
    run_dir = Path(run_dir)
    if resume and init_from is not None:
        raise UserError("init_from is for a new run, and resume for one that has its weights; give one of them.")
    config = _with_own(config, algorithm, model)
    setup(config.runtime, parts=parts_of(config), warn=None if config.runtime.threads else warn)
    config, replicas = open_replicas(config)
    with replicas.connected(), StopSignal() as stop, FolderLock(run_dir) as lock, ExitStack() as stack:
        config, saved = begin(config, run_dir, replicas, lock, resume=resume, warn=warn)
        check_agreement(replicas, config, versions())
        run = Run(run_dir, config, replicas, stop, *_build(config, saved, replicas, stack), callbacks)
        run.start(saved, init_from, lock, warn)
        run.open_files(stack, warn, saved)
        run.say_what_is_not_exact(saved, warn)
        with run.watched(progress):
            run.loop()
    run.say_if_nothing_was_learned(warn)
    run.check_end()
    return run.summary()


@dataclass
class Run:
    """A run in progress, and the rounds of its loop."""

    run_dir: Path
    config: Config
    replicas: Replicas
    stop: StopSignal
    envs: VecEnvGroups
    algorithm: Algorithm
    collector: RolloutCollector
    tracing: Future[None]
    own: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        self.counters = Counters()
        self.callbacks = Callbacks(self.own if self.replicas.is_chief else (), self.config, self.counters)
        self.games = Games(self.counters, self.replicas, partial(self.callbacks.tell, "on_episode"))
        self.checkpoints = Checkpoints(
            self.run_dir,
            self.config,
            algorithm=self.algorithm,
            collector=self.collector,
            counters=self.counters,
            replicas=self.replicas,
        )
        self.writers: Writers | None = None  # the chief's
        self.record: Record | None = None
        self.evaluation: EvalResult | None = None
        self.stopping = False
        self.ending = False  # a callback asked for it

    def loop(self) -> None:
        """Run rounds until all steps are done, or a signal comes."""
        self.stopping = self.replicas.consult(self.stop.signal is not None, False, False)[0]
        self.clock = Stopwatch(self.counters)
        if self.counters.evaluation_due(self.config):  # the previous session was stopped in it
            self.evaluate()
            self.consult()
            self.save()
        while not (self.finished or self.stopping or self.ending):
            update = self.learn()
            self.callbacks.learned(update.metrics)
            self.stop.watch(self.view.tick)
            if self.finished or self.counters.updates % self.config.logging.every_updates == 0:
                self.log(update)
            if self.counters.evaluation_due(self.config):
                self.evaluate()
            save_wished = self.consult()
            if self.finished or self.stopping or self.ending or save_wished or self.checkpoints.due_by_updates():
                self.save()
        self.callbacks.tell("on_end")
        self.replicas.barrier()  # no worker leaves before the chief has saved: the chief alone could not be restarted

    def consult(self) -> bool:
        """Stop if any worker's signal or callback asks for it; returns whether a checkpoint is asked for."""
        stop, end, save = self.replicas.consult(
            self.stop.signal is not None,
            self.callbacks.stopped_by is not None,
            self.checkpoints.due_by_time() | self.callbacks.save_wished(),
        )
        self.stopping |= stop
        self.ending |= end
        return save

    @property
    def finished(self) -> bool:
        """Whether all the steps are done."""
        return self.counters.finished(self.config)

    def learn(self) -> Update:
        """One round: collect, update, count."""
        update, episodes = as_iteration(self.algorithm.iterate(self.collector, self.counters.updates))
        self.tracing.result()  # raises what it raised
        self.counters.advance(self.config.env_steps_per_update, self.envs.frames_per_step, update.gradient_steps)
        self.games.add(episodes)
        self.incidents.check(update)
        self.clock.tick()
        return update

    def log(self, update: Update) -> None:
        """Write and show a line of metrics."""
        self.games.count()
        if self.writers is None:
            return
        self.check_reported(update)
        self.record = make_record(self.counters, update.metrics, self.config.algorithm.METRICS, self.clock.lap())
        with saving(self.run_dir, self.config):
            self.writers.write(self.record, lambda: weights_of(self.algorithm.policy.model))
        self.stop.watch(self.view.show, self.record, self.counters)

    def check_reported(self, update: Update) -> None:
        """Raise UserError if one of the METRICS is no number, or missing after an update with gradient steps."""
        names = [metric.name for metric in self.config.algorithm.METRICS]
        if odd := [n for n in names if n in update.metrics and not _is_number(update.metrics[n])]:
            value = shown(update.metrics[odd[0]])
            raise UserError(
                f"{self.config.algorithm.name}: its updates report {odd[0]!r} as {value}, and a metric has to be a "
                "number; report a mean."
            )
        if update.gradient_steps and not update.failed and (missing := [n for n in names if n not in update.metrics]):
            raise UserError(
                f"{self.config.algorithm.name}: its updates report no scalar {missing[0]!r}, which the METRICS of its "
                f"Section have; they report {', '.join(update.metrics)}."
            )

    def evaluate(self) -> None:
        """Play whole games beside training; their time is not counted."""
        self.evaluation, self.stopping = self.evaluator()
        if self.evaluation is not None:
            self.callbacks.tell("on_evaluation", self.evaluation.mean, self.evaluation.returns)
        self.clock.skip()

    def save(self) -> None:
        """Flush the logs to the disk, then write a checkpoint, so that no line before it can be lost."""
        self.games.count()
        with saving(self.run_dir, self.config):
            if self.writers is not None:
                self.writers.sync()
            self.checkpoints.save()
        self.callbacks.tell("on_checkpoint", step_file(self.checkpoints.folder, self.counters.env_steps))

    def start(self, saved: Saved | None, init_from: str | Path | None, lock: FolderLock, warn: Warn) -> None:
        """Resume from a checkpoint; or make the folder of a new run, which may start with another's weights."""
        if saved is None:
            if init_from is not None:
                first = starting_point(Path(init_from), self.replicas, warn)
                fresh = self.checkpoints.start_from(first)
                if self.replicas.is_chief:
                    tell_of_other_inputs(first, self.config, warn)
                    tell_of_fresh_networks(first, self.config, fresh, warn)
            open_folder(self.run_dir, self.replicas, lock)
        elif lost := self.checkpoints.restore(saved):
            forgets = ", with an empty replay" if self.algorithm.memory is not None else ""
            env = f"{self.config.env.id}{' in its env.wrappers' if self.config.env.wrappers else ''}"
            warn(
                f"{lost} of {self.envs.num_envs} environments are not where they were when {saved.path.name} was "
                f"written: {env} is not a function of its seed and actions, or is another version. They "
                f"start new games, and the run continues{forgets}, but not exactly."
            )

    def open_files(self, stack: ExitStack, warn: Warn, saved: Saved | None) -> None:
        """Save a new run, or a resumed one's new settings, before it can be killed; then open its files."""
        with saving(self.run_dir, self.config):
            if saved is None:
                self.checkpoints.save()
            elif self.replicas.is_chief and saved.config != self.config:
                self.checkpoints.keep_settings(saved)
            if self.replicas.is_chief:
                write_config(self.run_dir, self.config, self.checkpoints.init_from)
                self.writers = stack.enter_context(Writers(self.run_dir, self.config, self.counters, warn))

    @contextmanager
    def watched(self, progress: Progress | None) -> Iterator[None]:
        """A context that shows the run to the user, and saves what is needed to repeat a failure."""
        with (
            progress if progress and self.replicas.is_chief else Progress() as self.view,
            Incidents(
                self.run_dir, self.config, self.algorithm, self.collector, self.counters, self.replicas
            ) as self.incidents,
            self.replicas.connected(),
        ):
            self.stop.watch(self.view.start, self.config, self.counters)
            self.evaluator = Evaluator(
                self.algorithm,
                self.config,
                self.run_dir,
                self.counters,
                self.writers,
                self.stop,
                self.view,
                self.replicas,
            )
            yield

    def say_what_is_not_exact(self, saved: Saved | None, warn: Warn) -> None:
        """Warn if the bits may differ from those of another run, or of the previous session."""
        if self.finished or not self.replicas.is_chief:
            return
        if not self.config.algorithm.PROMISES.exact:
            warn(
                f"algorithm.name={self.config.algorithm.name} does not promise the same bits: two runs of one seed "
                "differ, and so do a resumed run and one that was never stopped."
            )
        elif saved is not None:
            tell_of_another_machine(saved, machine(parts_of(self.config)), warn)

    def say_if_nothing_was_learned(self, warn: Warn) -> None:
        """Warn if a finished run made no gradient step."""
        made = self.counters.gradient_steps or self.counters.skipped_updates
        if self.finished and self.replicas.is_chief and not made:
            warn("Nothing was learned: the run made no gradient step.")

    def check_end(self) -> None:
        """Raise UserError if the run ended because a callback raised, or what it prints cannot be written."""
        if self.callbacks.error is not None:
            raise UserError(self._why_it_ended(f"{self.callbacks.error}.")) from self.callbacks.error.__cause__
        if (error := self.stop.unshown) is not None:
            raise UserError(self._why_it_ended(f"What the run prints cannot be written: {error.strerror or error}."))

    def _why_it_ended(self, why: str) -> str:
        if self.finished:
            return f"{why} It is finished and saved."
        command = resume_command(self.run_dir, self.config)
        return f"{why} It was stopped after {self.counters.env_steps:,} steps and saved; resume it with `{command}`."

    def summary(self) -> TrainSummary:
        """How the run ended."""
        done = self.finished and not self.counters.evaluation_due(self.config)
        number = self.stop.signal or (signal.SIGTERM if self.stopping else None)  # another worker's
        ended_by = (self.callbacks.stopped_by or "a callback") if self.ending and number is None else None
        return TrainSummary(
            self.run_dir,
            self.config,
            self.replicas.is_chief,
            self.counters,
            self.record,
            self.evaluation,
            None if done else number,
            None if done else ended_by,
        )


def _build(
    config: Config, saved: Saved | None, replicas: Replicas, stack: ExitStack
) -> tuple[VecEnvGroups, Algorithm, RolloutCollector, Future[None]]:
    """Build the environments, the algorithm and the collector; the last is done when all is traced."""
    first = replicas.index * config.env.num_envs
    envs = make_env_groups(config.env, seed=config.seed, first=first, groups=parts_of(config))
    stack.enter_context(envs)
    if saved is not None:
        check_network(saved, envs.observation_space, envs.num_actions)
    other = stack.enter_context(ThreadPoolExecutor(1))
    reset = envs.reset
    if is_native(config.env):  # others may be bound to this thread
        reset = other.submit(envs.reset).result  # the games start while the network is built
    algorithm = build_algorithm(config, envs.observation_space, envs.num_actions, replicas=replicas)
    # while the first rollout is collected; whoever calls a function waits for its trace
    tracing = other.submit(algorithm.trace)
    return envs, algorithm, build_collector(config, envs, algorithm.behaviour, reset()), tracing


def _with_own(config: Config, algorithm: type[Algorithm] | None, model: Callable[..., Any] | None) -> Config:
    """The configuration with the user's own algorithm and network, under the names they are registered by."""
    if algorithm is None and model is None:
        return config
    values = dump_config(config)
    if algorithm is not None:
        name = register(algorithm)
        kept = {key: value for key, value in values["algorithm"].items() if key in section_named(name).model_fields}
        values["algorithm"] = {**kept, "name": name}
    if model is not None:
        values["model"]["name"] = register(model)
    return build_config(values, where="train")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return np.ndim(value) == 0


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Every trained variable of a network, by its path such as `conv_1/kernel`."""
    return {variable.path: np.asarray(variable) for variable in model.trainable_variables}
