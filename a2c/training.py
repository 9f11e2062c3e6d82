"""train(): the loop. Collect a rollout, learn from it, and now and then say, judge and save."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import yaml

from a2c.algorithms.algorithm import Algorithm, build_algorithm
from a2c.checkpoint import Checkpoints, Saved, demand_network, find_checkpoint, resume_command, versions
from a2c.config import SCHEMA, Config, UserError, all_keys, changed, dump_config, lookup, shown
from a2c.envs import make_env_groups
from a2c.evaluation import EvalResult, PlayedGame, evaluate_policy
from a2c.files import make_folder, write_atomically
from a2c.incident import Incidents
from a2c.lock import FolderLock
from a2c.metrics import Counters, Record, Writers, make_record
from a2c.progress import Progress
from a2c.replicas import Replicas, demand_agreement, from_text, open_replicas, to_text
from a2c.rollout import build_collector
from a2c.runtime import machine, parts_of, setup
from a2c.show.game import choose
from a2c.show.thumbnail import Gif, thumbnail
from a2c.trajectory import Episode

MEET_SECONDS = 5.0  # between two looks of the chief after the others while it plays an evaluation

# What may be another in a run that goes on, besides its length. All else would make it another run.
_FREE_KEYS = ("total_env_steps", "optimizer.on_nan", "runtime.cluster_wait_minutes")


@dataclass(frozen=True)
class TrainSummary:
    """How a call of `train` ended."""

    run_dir: Path
    config: Config  # with the numbers of workers and replicas that there were
    is_chief: bool  # else another worker has the folder, and says how it went
    counters: Counters
    record: Record | None  # the last line of metrics, None where there was nothing left to do
    evaluation: EvalResult | None
    signal: int | None  # the signal that stopped it early, if one did


def train(
    config: Config,
    run_dir: str | Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> TrainSummary:
    """Train an agent.

    Args:
        config: everything that decides the run; with `resume` that of the run, its length apart.
        run_dir: the run's folder; a new one, or with `resume` one that holds a checkpoint.
        resume: go on from the latest good checkpoint of `run_dir`, to the same bits as if never stopped.
        progress: what the user sees; nothing by default.
        warn: called with a sentence for each damaged checkpoint that was passed over, and if the run is not exact.

    Raises:
        UserError: where the folder, the environment or the checkpoint does not allow it, another process works in
            the folder, a file cannot be written, or an update is not finite (and `optimizer.on_nan` is "stop").
        CrashError: where anything else is raised in the loop; what is needed to repeat it is saved first.
    """
    run_dir = Path(run_dir)
    if config.runtime.strategy != "multiworker":  # whose other workers are to hear of it
        _refuse_folder(run_dir, resume=resume)
    parts = parts_of(config)
    setup(config.runtime, parts=parts, warn=None if config.runtime.threads else warn)
    config, replicas = open_replicas(config)
    counters = Counters()
    record, evaluation = None, None
    with replicas.connected(), StopSignal() as stop, FolderLock(run_dir) as lock, ExitStack() as stack:
        config, saved = _begin(config, run_dir, replicas, lock, resume=resume, warn=warn)
        demand_agreement(replicas, config, versions())
        first = replicas.index * config.env.num_envs
        envs = stack.enter_context(make_env_groups(config.env, seed=config.seed, first=first, groups=parts))
        if saved is not None:
            demand_network(saved, envs.observation_space, envs.num_actions)
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions, replicas=replicas)
        collector = build_collector(config, envs, algorithm.policy)
        checkpoints = Checkpoints(
            run_dir, config, algorithm=algorithm, collector=collector, counters=counters, replicas=replicas
        )
        if saved is None:
            _open_folder(run_dir, replicas, lock)
        if saved is not None and (lost := checkpoints.restore(saved)):
            warn(
                f"{lost} of {envs.num_envs} environments are not where they were when {saved.path.name} was written: "
                f"{config.env.id} is no function of its seed and actions, or is another version. They start new games, "
                "and the run goes on, but not exactly."
            )
        writers = None
        with _saving(run_dir, config):
            if saved is None:
                checkpoints.save()  # first of all, so that a run killed at any time can be resumed
            if replicas.is_chief:
                _write_config(run_dir, config)
                writers = stack.enter_context(Writers(run_dir, config, counters))
        with (
            progress if progress and replicas.is_chief else Progress() as view,
            Incidents(run_dir, config, algorithm, collector, counters, replicas) as incidents,
            replicas.connected(),
        ):
            stop.watch(view.start, config, counters)
            judge = Judge(algorithm, config, run_dir, counters, writers, stop, view, replicas)
            games = Games(counters, replicas)
            finished = counters.finished(config)
            if replicas.is_chief and not finished:
                if not config.algorithm.PROMISES.exact:
                    warn(
                        f"algorithm.name={config.algorithm.name} does not promise the same bits: two runs of one seed "
                        "differ, and so do a resumed run and one that was never stopped."
                    )
                elif saved is not None:
                    _tell_of_another_machine(saved, machine(parts), warn)
            stopping, _ = replicas.consult(stop.signal is not None, False)
            if counters.evaluation_due(config):  # the session before was stopped in it
                evaluation, stopping = judge()
                _save(run_dir, checkpoints, writers)
            algorithm.trace()
            clock = Stopwatch(counters)
            while not finished and not stopping:
                update, episodes = algorithm.iterate(collector, counters.updates)
                counters.advance(config.env_steps_per_update, envs.frames_per_step, update.gradient_steps)
                games.add(episodes)
                incidents.check(update)
                clock.tick()
                finished = counters.finished(config)
                logging = finished or counters.updates % config.logging.every_updates == 0
                judging = counters.evaluation_due(config)
                if logging:
                    games.count()
                if logging and writers is not None:
                    record = make_record(counters, update.metrics, config.algorithm.METRICS, clock.lap())
                    with _saving(run_dir, config):
                        writers.write(record, lambda: weights_of(algorithm.policy.model))
                    stop.watch(view.show, record, counters)
                if judging:
                    evaluation, stopping = judge()
                    clock.skip()
                wishes = replicas.consult(stop.signal is not None, checkpoints.due_by_time())
                stopping |= wishes[0]
                if finished or stopping or wishes[1] or checkpoints.due_by_updates():
                    games.count()
                    _save(run_dir, checkpoints, writers)
            replicas.gather({})  # nobody leaves before the chief has saved: alone it could not be started again
    done = finished and not counters.evaluation_due(config)
    number = stop.signal or (signal.SIGTERM if stopping else None)  # another worker's
    return TrainSummary(run_dir, config, replicas.is_chief, counters, record, evaluation, None if done else number)


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Every trained variable of a network, by its path such as `conv_1/kernel`."""
    return {variable.path: np.asarray(variable) for variable in model.trainable_variables}


class Games:
    """The games that ended in the environments of all workers since they were last counted."""

    def __init__(self, counters: Counters, replicas: Replicas) -> None:
        self.counters = counters
        self.replicas = replicas
        self._ended: list[tuple[int, int, float, int]] = []  # update, row, return, length of those of this worker

    def add(self, episodes: list[tuple[int, Episode]]) -> None:
        """Take note of those that ended in the update just counted, in the environments of this worker."""
        self._ended.extend((self.counters.updates, row, e.episode_return, e.length) for row, e in episodes)
        if self._ended and self.replicas.workers == 1:  # else counting is talking to all
            self.count()

    def count(self) -> None:
        """Count those of all workers, in the order in which one worker with all environments would."""
        mine = np.array(self._ended, np.float64).reshape(-1, 4)
        ended = np.concatenate([worker["games"] for worker in self.replicas.gather({"games": mine})])
        for _, _, episode_return, length in ended[np.lexsort((ended[:, 1], ended[:, 0]))].tolist():
            self.counters.count(episode_return, int(length))
        self._ended.clear()


class Stopwatch:
    """Counts the seconds of training into the counters, and the agent steps per second of each lap."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.time = time.perf_counter()
        self._start_lap()

    def tick(self) -> None:
        """Count the time since the last tick or skip."""
        now = time.perf_counter()
        self.counters.seconds += now - self.time
        self.time = now

    def skip(self) -> None:
        """Leave out the time since the last tick."""
        self.time = time.perf_counter()

    def lap(self) -> float:
        """End a lap: the agent steps per second in it."""
        speed = (self.counters.env_steps - self.lap_env_steps) / (self.counters.seconds - self.lap_seconds)
        self._start_lap()
        return speed

    def _start_lap(self) -> None:
        self.lap_env_steps, self.lap_seconds = self.counters.env_steps, self.counters.seconds


@dataclass
class Judge:
    """Lets the chief play the whole games of an evaluation beside a run, and report them; the others wait for it.

    A signal cuts it short: then it counts as not done, and whoever goes on begins it again.
    """

    algorithm: Algorithm
    config: Config
    run_dir: Path
    counters: Counters
    writers: Writers | None
    stop: StopSignal
    view: Progress
    replicas: Replicas

    def __call__(self) -> tuple[EvalResult | None, bool]:
        """Evaluate the network as it stands: the result where this is the chief, and whether a signal came to any."""
        result = None if self.writers is None else self._evaluate(self.writers)
        playing, signalled = self._meet(playing=False)
        while playing:
            playing, signalled = self._meet(playing=False)
        return result, signalled

    def _meet(self, *, playing: bool) -> tuple[bool, bool]:
        """All workers come here, now and then while the chief plays, and when it has: whether it does, and signals."""
        self._met = time.monotonic()
        mine = {"playing": playing, "evaluated": self.counters.evaluated, "signalled": self.stop.signal is not None}
        each = self.replicas.gather({name: np.array(value) for name, value in mine.items()})
        self.counters.evaluated = int(each[0]["evaluated"])
        return bool(each[0]["playing"]), any(bool(worker["signalled"]) for worker in each)

    def _check(self) -> None:
        """Called before each step: so that signals, and the end of a worker, are heard while it plays."""
        self.stop.check()
        if self.replicas.workers > 1 and time.monotonic() > self._met + MEET_SECONDS and self._meet(playing=True)[1]:
            raise StoppedError

    def _evaluate(self, writers: Writers) -> EvalResult | None:
        scores: list[float] = []
        self._met = time.monotonic()

        def on_episode(episode: Episode) -> None:
            scores.append(episode.episode_return)
            self.stop.watch(self.view.evaluating, scores, self.config.evaluation.episodes)

        try:
            result, played = evaluate_policy(
                self.algorithm.policy,
                self.config,
                str(self.run_dir),
                self.counters.env_steps,
                on_episode=on_episode,
                on_step=self._check,
            )
            video = self._video(played, writers)
        except StoppedError:
            return None
        self.counters.evaluated = self.counters.env_steps
        with _saving(self.run_dir, self.config):
            writers.write_evaluation(asdict(result), video)
        return result

    def _video(self, played: list[PlayedGame], writers: Writers) -> Gif | None:
        """The start of the median game, where there is a TensorBoard to show it and the environment has pictures."""
        if writers.events is None or not self.config.evaluation.video:
            return None
        return thumbnail(self.config.env, choose(played, "median"), on_frame=self._check)


class StoppedError(Exception):
    """A signal asks for an end."""


class StopSignal:
    """While entered, SIGINT, SIGTERM and SIGHUP ask the loop to stop after the update under way.

    A second one is handled as ever, for a loop that hangs. A SIGHUP that is ignored stays so, as `nohup` wants it.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> StopSignal:
        self.before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # not in the main thread, where Python handles signals
            for number in self.SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self.before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raise StoppedError where a signal has come."""
        if self.signal is not None:
            raise StoppedError

    def watch(self, show: Callable[..., None], *what: Any) -> None:
        """Show something; a terminal or pipe that is gone counts as its signal."""
        try:
            show(*what)
        except BrokenPipeError:
            self.signal = signal.SIGPIPE
        except OSError:
            self.signal = signal.SIGHUP

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _begin(
    config: Config, run_dir: Path, replicas: Replicas, lock: FolderLock, *, resume: bool, warn: Callable[[str], None]
) -> tuple[Config, Saved | None]:
    """What to go on from, None for a new run: the chief looks into the folder, and tells the others.

    Returns:
        The configuration, where a run goes on with the chief's new length and what else may change; and what was saved.
    """

    def look() -> dict[str, np.ndarray]:
        _refuse_folder(run_dir, resume=resume)
        if not resume:
            return {}
        if (run_dir / "checkpoints").is_dir():  # else there is nothing to lock
            lock.take()
        saved = _latest(run_dir, config, warn)  # under the lock: nobody else goes on from it, or beyond it
        free = {key: lookup(config, key) for key in _FREE_KEYS}
        return {**saved.packed(), "free": from_text(json.dumps(free))}

    found = replicas.from_chief(look)
    if not found:
        return config, None
    return changed(config, json.loads(to_text(found.pop("free")))), Saved.unpacked(found)


def _open_folder(run_dir: Path, replicas: Replicas, lock: FolderLock) -> None:
    """The chief makes the folder of a new run and takes it; a mistake of its is one of all."""

    def make() -> dict[str, np.ndarray]:
        make_folder(run_dir, "run folder")
        lock.take()
        _refuse_existing(run_dir)  # again: another may have begun there meanwhile
        return {}

    replicas.from_chief(make)


def _latest(run_dir: Path, config: Config, warn: Callable[[str], None]) -> Saved:
    """The checkpoint to go on from, if `config` is that of the run, its length apart."""
    saved = find_checkpoint(run_dir, warn)
    for key in all_keys():
        given, stored = lookup(config, key), lookup(saved.config, key)
        if given != stored and key not in _FREE_KEYS:
            raise UserError(
                f"{run_dir} was started with {key}={stored}, not {given}; leave that out, or start a new run."
            )
    if config.total_env_steps < saved.env_steps and config.total_env_steps != saved.config.total_env_steps:
        raise UserError(
            f"{run_dir} has done {saved.env_steps:,} steps already; --steps is the total, give at least that."
        )
    if saved.meta.get("versions") != versions():
        warn(f"{run_dir} was made with other versions than those here: it goes on, but not to the same bits.")
    return saved


def _tell_of_another_machine(saved: Saved, here: str, warn: Callable[[str], None]) -> None:
    there = saved.meta.get("machine", here)
    if there != here:
        warn(
            f"{saved.path.name} was written on {shown(there)}, and this is {here!r}: the run goes on, "
            "but its bits may be others."
        )


def _refuse_folder(run_dir: Path, *, resume: bool) -> None:
    _refuse_links(run_dir)
    if not resume:
        _refuse_existing(run_dir)


def _refuse_links(run_dir: Path) -> None:
    """A run's folder may be a link; what is written into must not lead out of it."""
    for name in ("checkpoints", "incidents"):
        if (run_dir / name).is_symlink():
            raise UserError(
                f"{run_dir / name} is a link; a run writes into its own folder only, so put a folder there."
            )


def _refuse_existing(run_dir: Path) -> None:
    """A folder with nothing but the temporary files of a killed start is as good as new."""
    if run_dir.is_file() or any(file.is_file() and not file.name.startswith(".") for file in run_dir.rglob("*")):
        raise UserError(f"{run_dir} exists already; go on with `a2c resume {run_dir}`, or choose another --run-dir.")


@contextmanager
def _saving(run_dir: Path, config: Config) -> Iterator[None]:
    """Tell of a file that cannot be written, be it that the disk is full."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"A file of {run_dir} cannot be written ({error.strerror}): the run is stopped, and whole up to its last "
            f"checkpoint. Make room, then go on with `{resume_command(run_dir, config)}`."
        ) from None


def _save(run_dir: Path, checkpoints: Checkpoints, writers: Writers | None) -> None:
    with _saving(run_dir, checkpoints.config):
        if writers is not None:
            writers.sync()  # first, so that no line up to the checkpoint can be lost
        checkpoints.save()


def _write_config(run_dir: Path, config: Config) -> None:
    values = {"schema": SCHEMA, **dump_config(config), "provenance": {**versions(), "git": _git_state()}}
    write_atomically(run_dir / "config.yaml", yaml.safe_dump(values, sort_keys=False))


def _git_state() -> str | None:
    """The commit this code was checked out at, `+changes` where it was edited; None outside a checkout."""
    checkout = Path(__file__).resolve().parents[1]
    if not (checkout / ".git").exists():
        return None  # installed: a repository further up is not ours
    git = ["git", "-C", str(checkout), "describe", "--always", "--dirty=+changes", "--abbrev=40"]
    try:
        answer = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
