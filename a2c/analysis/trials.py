"""The trials of a hyperparameter search, in an Optuna study that several processes may share.

A running trial is RUNNING in the study, and its folder in `locks/` is locked by the process that works on it.
If that process is killed, the system releases the lock, and the next process that finds it free takes the trial over.
A finished trial stays locked until its process has looked for the next one, so that others know that it will.
"""

from __future__ import annotations

import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from a2c.analysis.space import Dimension, Range, Space, contains, rounded, with_settings
from a2c.config import Config, UserError, changed, dotted, dump_config, short_key
from a2c.reading import read_bytes
from a2c.run.files import make_folders, write_atomically
from a2c.run.lock import FolderLock, LockedError, alone_in, is_locked

GRID = 20  # points of a run at which trials are compared
STUDY = "a2c"  # the name of the study in the folder's own storage
MOST_REFUSED = 50  # contradictory settings in a row
STARTUP = (4, 10)  # trials drawn at random before TPE starts: a third of all, within these bounds
DEFAULT, REFUSED, SAME = "default", "refused", "same settings as trial"  # attributes of a trial
REASON = "reason"
FOLDER = "folder"  # an attribute of the study
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}  # Optuna's and ours
WAIT_SECONDS, TRY_SECONDS = 60.0, 0.2  # for another process to finish its write
MADE_MEANWHILE = re.compile("already exists|unique|duplicate", re.IGNORECASE)  # what databases say of another's table


@dataclass
class Claim:
    """A trial that this process works on."""

    number: int
    trial: Any  # of Optuna
    settings: dict[str, Any]  # by dotted key
    config: Config
    lock: FolderLock
    reported: set[int] = field(default_factory=set)  # agent steps

    @property
    def name(self) -> str:
        """For files and folders."""
        return f"{self.number:04d}"

    def report(self, values: Mapping[int, float]) -> bool:
        """Report values by agent steps; returns whether something is new."""
        new = {step: value for step, value in sorted(values.items()) if step not in self.reported}
        for step, value in new.items():
            self.trial.report(value, step)
        self.reported |= new.keys()
        return bool(new)


class Trials:
    """The study of a folder.

    Args:
        folder: of the search.
        config: the default settings.
        space: what is varied.
        number: trials in all, of all processes.
        storage: an opened Optuna storage. Default: `study.db` in the folder.
        pruner: median, hyperband or none.

    Raises:
        UserError: if Optuna is not installed, the storage cannot be opened, or holds another study of this name.
    """

    def __init__(
        self, folder: Path, config: Config, space: Space, *, number: int, storage: Any = None, pruner: str
    ) -> None:
        self.folder, self.config, self.space, self.number = folder, config, space, number
        values = dotted(dump_config(config))
        self.defaults = {key: values[key] for key in space}
        self.optuna = import_optuna()
        self.state = self.optuna.trial.TrialState
        self._told: list[FolderLock] = []  # of trials that this process has finished since its last claim
        with alone_in(folder):
            self.study = self._open(storage, pruner)
            self._enqueue_default()

    def all(self) -> list[Any]:
        """All trials, as Optuna's FrozenTrial, except those whose settings were refused."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if REFUSED not in trial.user_attrs]

    def settings_of(self, trial: Any) -> dict[str, Any]:
        """The settings of a trial, by dotted key; what it did not draw has its default."""
        found = dict(self.defaults)
        for key, value in trial.params.items():
            dimension = self.space[key]
            if isinstance(dimension, Range):
                found[key] = rounded(dimension, value, self.defaults[key])
            else:
                found[key] = next(each for each in dimension.values if _plain(each) == value)
        return found

    def best(self) -> Any:
        """The trial with the highest score, the first of several; None if none is complete."""
        complete = [trial for trial in self.all() if trial.state == self.state.COMPLETE]
        return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)

    def claim(self, *, new: bool) -> Claim | None:
        """A trial that no other process works on: one that was left, else a new one if `new`; None if there is none.

        Raises:
            UserError: if MOST_REFUSED draws in a row contradict themselves.
        """
        try:
            with alone_in(self.folder):
                return self._left_trial() or (self._new_trial() if new else None)
        finally:
            self.leave()

    def leave(self) -> None:
        """Release the trials that this process has finished; `claim` does it too."""
        while self._told:
            self._told.pop().release()

    def complete(self, claim: Claim, score: float) -> None:
        """Tell the score of a trial that was trained to its end."""
        self._tell(claim, score, self.state.COMPLETE)

    def prune(self, claim: Claim) -> None:
        """Tell that a trial was stopped early."""
        self._tell(claim, None, self.state.PRUNED)

    def fail(self, claim: Claim, reason: str) -> None:
        """Tell that a trial failed."""
        claim.trial.set_user_attr(REASON, reason)
        self._tell(claim, None, self.state.FAIL)

    def should_prune(self, claim: Claim) -> bool:
        """Whether a trial is hopeless; the default never is, since all others are compared with it."""
        return not self.is_default(claim) and bool(claim.trial.should_prune())

    def is_default(self, claim: Claim) -> bool:
        """Whether a trial has the default settings."""
        return DEFAULT in claim.trial.user_attrs

    def some_are_running(self) -> bool:
        """Whether a trial is running, or another process has yet to look for its next one."""
        # in this order: a lock that is free was released after the next trial was asked for
        return any(is_locked(folder) for folder in self.folder.glob("locks/*")) or bool(self._running())

    def counts(self) -> dict[str, int]:
        """The number of trials of each state."""
        states = [trial.state.name for trial in self.all()]
        return {name: states.count(state) for state, name in STATES.items()}

    def described(self, claim: Claim) -> str:
        """The settings of a trial in words."""
        if self.is_default(claim):
            return "the default settings"
        return ", ".join(f"{short_key(key)}={value}" for key, value in claim.settings.items())

    # --- within the study -------------------------------------------------------------------------------------------

    def _open(self, storage: Any, pruner: str) -> Any:
        optuna, total = self.optuna, self.config.total_env_steps
        pruners: dict[str, Callable[[], Any]] = {
            "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=total // 5),
            "hyperband": lambda: optuna.pruners.HyperbandPruner(max(1, total // GRID), total),
            "none": optuna.pruners.NopPruner,
        }
        own, file = storage is None, self.folder / "study.db"
        study = optuna.create_study(
            storage=open_storage(f"sqlite:///{file.absolute()}", f"The storage {file}") if own else storage,
            study_name=STUDY if own else f"{STUDY}-{self.folder.absolute().name}",
            direction="maximize",
            load_if_exists=True,
            pruner=pruners[pruner](),
        )
        self._check_folder(study)
        return study

    def _check_folder(self, study: Any) -> None:
        """Check that the study is of this folder, in which it leaves a mark: its trials are resumed from there."""
        file = self.folder / "study.id"
        if not file.exists():
            write_atomically(file, f"{uuid4()}\n")
        own, marked = read_bytes(file, 1000).decode(errors="replace").strip(), study.user_attrs.get(FOLDER)
        if marked is None and not any(self.folder.glob("trials/*")):
            study.set_user_attr(FOLDER, own)
        elif marked is None:
            raise UserError(f"{self.folder} holds trials of a study in another storage; give the same --storage again.")
        elif marked != own:
            raise UserError(
                f"The storage holds a study {study.study_name} of another folder; share that folder between all "
                "processes, or choose an --out of another name."
            )

    def _running(self) -> list[Any]:
        return [trial for trial in self.study.get_trials(deepcopy=False) if trial.state == self.state.RUNNING]

    def _enqueue_default(self) -> None:
        """Ask for the default first, and again if it failed; what the space does not contain is not drawn."""
        failed = self.state.FAIL
        if any(DEFAULT in trial.user_attrs and trial.state != failed for trial in self.study.get_trials()):
            return
        values = {key: _plain(value) for key, value in self.defaults.items() if contains(self.space[key], value)}
        self.study.enqueue_trial(values, user_attrs={DEFAULT: True})

    def _left_trial(self) -> Claim | None:
        for trial in self._running():
            if own := self._lock(trial.number):
                left = self.optuna.trial.Trial(self.study, trial._trial_id)
                if (claim := self._claim(left, own)) is not None:
                    return claim
        return None

    def _new_trial(self) -> Claim | None:
        while sum(trial.state != self.state.WAITING for trial in self.all()) < self.number:
            if (claim := self._ask()) is not None:
                return claim
        return None

    def _ask(self) -> Claim | None:
        """A new trial; None if its settings contradict each other, or another trial had them."""
        before = self.study.get_trials(deepcopy=False)
        finished = [each for each in self.all() if each.state.is_finished()]
        trial = self.study.ask()
        lock = self._lock(trial.number)
        assert lock is not None
        claim = self._claim(trial, lock)
        if claim is None:
            refused = [REFUSED in each.user_attrs for each in before[-MOST_REFUSED:]]
            if len(refused) == MOST_REFUSED and all(refused):
                reason = before[-1].user_attrs[REFUSED]
                raise UserError(f"{MOST_REFUSED} settings in a row contradict themselves; the last: {reason}")
            return None
        twin = next((each for each in finished if self.settings_of(each) == claim.settings), None)
        if twin is None or self.is_default(claim):
            return claim
        self._tell_as(claim, twin)
        return None

    def _tell_as(self, claim: Claim, twin: Any) -> None:
        """Tell a trial's result without training it, since a finished one had the same settings."""
        claim.trial.set_user_attr(SAME, twin.number)
        claim.report(twin.intermediate_values)
        if twin.state == self.state.FAIL:
            claim.trial.set_user_attr(REASON, twin.user_attrs.get(REASON, ""))
        self._tell(claim, twin.value if twin.state == self.state.COMPLETE else None, twin.state)

    def _sampler(self, number: int) -> Any:
        """The sampler of one trial: what it draws is a function of the seed, the trial's number and earlier trials."""
        seed = int(np.random.SeedSequence([self.config.seed, number]).generate_state(1)[0])
        low, high = STARTUP
        return self.optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=min(max(self.number // 3, low), high), constant_liar=True
        )

    def _claim(self, trial: Any, lock: FolderLock) -> Claim | None:
        """Draw the settings that a trial lacks; None if they contradict each other."""
        self.study.sampler = self._sampler(trial.number)
        for key, dimension in self.space.items():
            if DEFAULT not in trial.user_attrs or contains(dimension, self.defaults[key]):
                _suggest(trial, key, dimension)
        settings = self.settings_of(trial)
        try:
            config = with_lines_on_grid(with_settings(self.config, settings))
        except UserError as error:
            trial.set_user_attr(REFUSED, str(error))
            self.study.tell(trial, state=self.state.PRUNED)
            lock.release()
            return None
        reported = set(self.study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        return Claim(trial.number, trial, settings, config, lock, reported)

    def _lock(self, number: int) -> FolderLock | None:
        """The lock of a running trial, None if another process, or this one, works on it or has just finished it."""
        folder = self.folder / "locks" / f"{number:04d}"
        make_folders(folder)
        lock = FolderLock(folder)
        if is_locked(folder):
            return None
        try:
            lock.take()
        except LockedError:
            return None
        if not any(trial.number == number for trial in self._running()):
            lock.release()
            return None
        return lock

    def _tell(self, claim: Claim, score: float | None, state: Any) -> None:
        self.study.tell(claim.trial, score, state)
        self._told.append(claim.lock)


def with_lines_on_grid(config: Config) -> Config:
    """The settings with a line of metrics at each of GRID points of a run, if its updates are short enough for that."""
    between = config.total_env_steps // (GRID * config.env_steps_per_update)
    return changed(config, {"logging.every_updates": max(1, min(config.logging.every_updates, between))})


@contextmanager
def storing() -> Iterator[None]:
    """Turn an error of the storage, such as that of a full disk, into a UserError."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("optuna", "sqlalchemy"):
            raise
        cause = str(error.__cause__ or error).strip().partition("\n")[0].rstrip(".")
        raise UserError(f"The study cannot be read or written ({cause}). The same command continues.") from None


def _suggest(trial: Any, key: str, dimension: Dimension) -> None:
    """Draw a setting, if the trial does not have it yet."""
    if not isinstance(dimension, Range):
        trial.suggest_categorical(key, [_plain(value) for value in dimension.values])
    elif dimension.whole:
        low, high, step = int(dimension.low), int(dimension.high), int(dimension.step or 1)
        trial.suggest_int(key, low, high, log=dimension.log, step=step)
    else:
        trial.suggest_float(key, dimension.low, dimension.high, log=dimension.log, step=dimension.step)


def _plain(value: Any) -> Any:
    """A value that a storage can hold: a list becomes a text."""
    return json.dumps(value) if isinstance(value, list) else value


def open_storage(url: str, what: str = "--storage") -> Any:
    """Connect to the Optuna storage at a URL.

    Args:
        url: such as sqlite:///study.db.
        what: the storage in words, for the error.

    Raises:
        UserError: if Optuna is not installed, or the storage cannot be opened.
    """
    storages, deadline = import_optuna().storages, time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if url.startswith("sqlite"):
                return storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": WAIT_SECONDS}})
            return storages.get_storage(url)
        except Exception as error:  # of SQLAlchemy, of the database's driver, or of Optuna
            said = str(error).strip().partition("\n")[0].rstrip(".")
            if time.monotonic() > deadline or not MADE_MEANWHILE.search(said):
                raise UserError(f"{what} cannot be opened with Optuna ({said}).") from None
        time.sleep(TRY_SECONDS)


def import_optuna() -> Any:
    """Optuna, which says nothing on the screen.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UserError("a2c tune needs Optuna: pip install 'a2c[tune]'.") from None
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(logging.ERROR)
    return optuna
