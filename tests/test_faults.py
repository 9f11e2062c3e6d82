"""What goes wrong while a run is under way: real full disks, signals, processes, bytes and numbers."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from conftest import (
    GRAPH,
    assert_one_sentence,
    heed_sigint,
    read_lines,
    rewritten,
    small_config,
    timeless,
    wait_for,
)
from gymnasium.spaces import Box, Discrete

from a2c.config import Config, CrashError, UserError, build_config, changed
from a2c.evaluation.evaluate import evaluate
from a2c.execution.signals import StopSignal
from a2c.run.archive import read_archive, write_archive
from a2c.run.callbacks import Callback
from a2c.run.checkpoint import read_checkpoint
from a2c.run.files import write_atomically
from a2c.run.folder import saving
from a2c.run.incident import KEPT, SKIPPED_IN_A_ROW
from a2c.run.lock import FolderLock
from a2c.run.lookup import command_for, find_checkpoint, find_runs
from a2c.run.progress import Progress
from a2c.run.step_files import step_files
from a2c.run.training import train


class Sick(gym.Env):
    """Two numbers in view, 10 steps an episode; in the middle of some episodes what `sickness` says."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(2)
    sickness = "none"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.infected = seed % 7 == 0  # with run seed 0 in updates 9, 14, 15 and 16 of 20
        return self._look(), {}

    def step(self, action):
        self.t += 1
        sick = self.infected and self.t == 5
        if sick and self.sickness == "crash":
            raise ZeroDivisionError("the moon\nis full")
        if sick and self.sickness == "exit":
            sys.exit(0)
        reward = np.inf if sick and self.sickness == "reward" else float(action)
        return self._look(sick), reward, self.t >= 10, False, {}

    def _look(self, sick=False):
        if self.sickness == "clock":  # not a function of its seed
            return np.array([time.perf_counter(), 0], np.float32)
        look = self.np_random.normal(size=2).astype(np.float32)
        return look * np.nan if sick and self.sickness == "observation" else look


def sick_config(sickness: str, **sections: object):
    """2 environments x 8 steps."""
    env_id = f"Sick{sickness.title()}-v0"
    if env_id not in gym.registry:
        kind = type(env_id, (Sick,), {"sickness": sickness})
        gym.register(env_id, lambda **options: kind(**options))
    values = {
        "env": {"id": env_id, "num_envs": 2, "reward_clipping": "none"},
        "model": {"name": "mlp", "hidden_sizes": [8]},
        "logging": {"every_updates": 1},
        "checkpoint": {"every_updates": 3},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
    return small_config(**values)


def lines(run_dir: Path) -> list[dict]:
    return [timeless(line) for line in read_lines(run_dir / "metrics.jsonl")]


def weights(run_dir: Path) -> list[bytes]:
    groups = ("model/", "optimizer/")
    arrays = find_checkpoint(run_dir).arrays
    return [array.tobytes() for name, array in arrays.items() if name.startswith(groups)]


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sickness", "stage", "mode"),
    [("observation", "batch.observations", "graph"), ("reward", "batch.rewards", "eager")],
)
def test_an_update_that_is_not_finite_stops_the_run_and_leaves_its_batch(run_dir, sickness, stage, mode):
    config = sick_config(sickness, runtime={"mode": mode})
    with pytest.raises(
        UserError, match=rf"Update 9 is not finite, first in {stage}.*Mend the env.*--on-nan skip"
    ) as error:
        train(config, run_dir)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    assert [file.name for file in step_files(run_dir / "checkpoints")][-1] == "step-000000000096.npz"
    incident = run_dir / "incidents" / "step-000000000144"
    report = json.loads((incident / "report.json").read_text())
    assert report["nonfinite_stage"] == stage
    arrays = read_archive(incident / "update.npz")
    assert not np.isfinite(arrays[stage.replace(".", "/")]).all()
    assert all(np.isfinite(array).all() for name, array in arrays.items() if name.startswith(("model", "optimizer")))
    assert sum(name.startswith("batch/") for name in arrays) == 7


@pytest.mark.parametrize("sickness", ["observation", pytest.param("reward", marks=pytest.mark.integration)])
def test_nan_of_an_environment_is_not_blamed_on_the_learning_rate(run_dir, sickness):
    """The minibatches of PPO have advantages, not rewards."""
    config = sick_config(sickness, algorithm={"name": "ppo", "num_minibatches": 2, "num_epochs": 1})
    with pytest.raises(UserError, match="Mend the environment, which gave NaN or infinity, or leave"):
        train(config, run_dir)


def test_the_stage_is_found_where_the_numbers_come_in_finite(run_dir):
    """The square of a huge return overflows."""
    gym.register("Huge-v0", lambda: gym.wrappers.TransformReward(Sick(), lambda reward: 1e30))
    with pytest.raises(
        UserError, match=r"Update 1 is not finite, first in stage 'value_loss'.* smaller optimizer\.learning_rate"
    ):
        train(sick_config("none", env={"id": "Huge-v0"}), run_dir)


def test_skipping_applies_nothing_and_goes_on(run_dir, tmp_path):
    """The same weights as before the skipped updates; they are counted, and the metrics have no such numbers."""
    config = sick_config("reward", optimizer={"on_nan": "skip"}, total_env_steps=144)
    train(config, run_dir)
    assert [row["skipped_updates"] for row in lines(run_dir)] == [0] * 8 + [1]
    assert lines(run_dir)[-1]["total_loss"] is None
    before = sick_config("none", total_env_steps=128)
    train(before, tmp_path / "before")
    assert weights(run_dir) == weights(tmp_path / "before")


@pytest.mark.integration
def test_a_run_that_was_stopped_goes_on_with_skipping_and_can_be_repeated_from_its_incident(run_dir):
    config = sick_config("reward")
    with pytest.raises(UserError, match="not finite"):
        train(config, run_dir)
    (incident,) = (run_dir / "incidents").iterdir()
    with pytest.raises(UserError, match="Update 9 is not finite"):
        train(config, incident, resume=True)  # an incident is a run that comes to the same place
    skipping = config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"on_nan": "skip"})})
    summary = train(skipping, run_dir, resume=True)
    assert summary.counters.env_steps == 320
    assert summary.counters.skipped_updates == 4


def test_nothing_that_may_be_set_makes_what_is_applied_infinite(run_dir):
    """The norm of 1e39 is infinite in float32, and its product with 0 is not a number."""
    for value in (1e39, 1e-39):
        with pytest.raises(UserError, match=r"optimizer.max_grad_norm=.* is not allowed"):
            small_config(optimizer={"max_grad_norm": value})
    for name in ("adam", "rmsprop"):
        extreme = {"name": name, "max_grad_norm": 1e6, "epsilon": 1e-30, "learning_rate": 1000, "on_nan": "skip"}
        folder = run_dir / name
        train(small_config(env={"id": "Catch"}, optimizer=extreme, total_env_steps=128), folder)
        arrays = find_checkpoint(folder).arrays
        assert all(np.isfinite(array).all() for key, array in arrays.items() if key.startswith("model/"))


def test_skipping_for_ever_ends(run_dir):
    gym.register("Hopeless-v0", lambda: gym.wrappers.TransformReward(Sick(), lambda reward: np.nan))
    own = {"env": {"id": "Hopeless-v0"}, "optimizer": {"on_nan": "skip"}, "runtime": GRAPH}
    config = sick_config("none", **own, total_env_steps=1_000_000)
    with pytest.raises(UserError, match=f"nor were the {SKIPPED_IN_A_ROW - 1} before it.*Mend the env.* start again"):
        train(config, run_dir)
    incidents = list((run_dir / "incidents").iterdir())
    assert len(incidents) == KEPT
    for incident in incidents:  # the later ones after games whose returns are NaN, which JSON does not know
        json.loads((incident / "report.json").read_text(), parse_constant=pytest.fail)
    with pytest.raises(UserError, match=f"its batch is not kept, since {KEPT} incidents are, and the last checkpoint"):
        train(changed(config, {"optimizer.on_nan": "stop"}), run_dir, resume=True)


# --- exceptions ------------------------------------------------------------------------------------------------------


def test_an_exception_in_the_loop_leaves_what_repeats_it(run_dir):
    config = sick_config("crash", logging={"every_updates": 100})
    with pytest.raises(
        CrashError,
        match=r"after update 8 with ZeroDivisionError: the moon \(test_faults.py, line \d+\); what .*`a2c resume",
    ) as error:
        train(config, run_dir)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 1
    incident = run_dir / "incidents" / "step-000000000128"
    report = json.loads((incident / "report.json").read_text())
    assert "is full" in report["exception"]
    assert report["counters"]["updates"] == 8
    assert report["counters"]["episodes"] == 12  # of 10 steps, in 2 environments x 64 steps, also between two lines
    with pytest.raises(CrashError, match="after update 8 with ZeroDivisionError"):
        train(config, incident, resume=True)
    assert find_runs(run_dir.parent) == [run_dir]  # an incident is no agent


def test_a_users_code_that_calls_sys_exit_does_not_end_the_run_as_if_it_were_done(run_dir):
    with pytest.raises(CrashError, match="The run stopped after update 8 with SystemExit: 0") as error:
        train(sick_config("exit"), run_dir)
    assert error.value.exit_code == 1
    assert "sys.exit" in json.loads((run_dir / "incidents/step-000000000128/report.json").read_text())["exception"]


def test_an_exception_after_too_many_incidents_says_that_nothing_is_kept(run_dir):
    for number in range(KEPT):
        (run_dir / "incidents" / f"step-{number:012d}").mkdir(parents=True)
    with pytest.raises(CrashError, match=f"what is needed to repeat it is not kept, since {KEPT} incidents are"):
        train(sick_config("crash"), run_dir)


# --- environments that cannot be played again ------------------------------------------------------------------------


def test_an_environment_that_is_no_function_of_its_seed_is_noticed_at_resume(run_dir):
    config = sick_config("clock", total_env_steps=64)
    train(config, run_dir)
    said = []
    summary = train(config.model_copy(update={"total_env_steps": 128}), run_dir, resume=True, warn=said.append)
    assert len(said) == 1
    assert said[0].startswith("2 of 2 environments are not where they were")
    assert "not exactly" in said[0]
    assert summary.counters.env_steps == 128


def test_one_that_raises_while_it_is_played_again_is_told_in_a_sentence(run_dir, monkeypatch):
    config = sick_config("none", total_env_steps=64)
    train(config, run_dir)
    monkeypatch.setattr(Sick, "step", lambda self, action: 1 / 0)
    with pytest.raises(CrashError, match=r"^SickNone-v0 raised ZeroDivisionError: .* its running games were played"):
        train(config.model_copy(update={"total_env_steps": 128}), run_dir, resume=True)


def test_one_that_cannot_be_started_again_is_the_users_mistake(run_dir, monkeypatch):
    config = sick_config("none", total_env_steps=64)
    train(config, run_dir)
    monkeypatch.setattr(Sick, "reset", lambda self, seed=None, options=None: 1 / 0)
    with pytest.raises(UserError, match=r"^The environment env\.id=SickNone-v0 cannot be started: ZeroDivisionError"):
        train(config.model_copy(update={"total_env_steps": 128}), run_dir, resume=True)


@pytest.mark.parametrize(
    ("step", "said"),
    [(lambda *_: 1 / 0, "ZeroDivisionError: division by zero"), (lambda *_: sys.exit(0), "SystemExit: 0")],
)
def test_one_that_fails_in_an_evaluation_is_told_in_a_sentence(run_dir, monkeypatch, step, said):
    train(sick_config("none", total_env_steps=64), run_dir)
    monkeypatch.setattr(Sick, "step", step)
    with pytest.raises(CrashError, match=rf"^The environment env\.id=SickNone-v0 failed: {said} \(test_faults\.py"):
        evaluate(run_dir, episodes=1)


def test_scores_that_are_not_finite_are_no_result(run_dir, monkeypatch):
    train(sick_config("none", total_env_steps=64), run_dir)
    monkeypatch.setattr(Sick, "step", lambda self, action: (self._look(), np.inf, True, False, {}))
    with pytest.raises(UserError, match="Scores of SickNone-v0 are NaN or infinite, as its rewards are"):
        evaluate(run_dir, episodes=2)


def test_what_is_said_of_a_folder_that_is_gone_or_begins_with_a_dash_can_be_done(tmp_path):
    gone = tmp_path / "gone"
    with (
        pytest.raises(UserError, match=rf"^{re.escape(str(gone))} was deleted or moved"),
        saving(gone, sick_config("none")),
    ):
        raise OSError(errno.ENOENT, "No such file or directory")
    assert command_for("eval", Path("-x"), small_config()) == "a2c eval ./-x"


def test_a_replay_stays_until_the_next_checkpoint_if_environments_are_lost(run_dir, tmp_path, monkeypatch):
    """Then the run can still be resumed where its environments are what they were."""
    values = sick_config("none", total_env_steps=64).model_dump(mode="json")
    replay = {"name": "dqn", "rollout_length": 8, "learning_starts": 16, "replay_capacity": 64}
    config = build_config({**values, "algorithm": replay}, where="test")
    train(config, run_dir)

    class Copy(Callback):
        def on_update(self, moment):
            if not (tmp_path / "copy").exists():
                shutil.copytree(run_dir, tmp_path / "copy")

    longer, said = config.model_copy(update={"total_env_steps": 128}), []
    with monkeypatch.context() as patch:
        patch.setattr(Sick, "_look", lambda self, sick=False: np.ones(2, np.float32))  # another version
        train(longer, run_dir, resume=True, callbacks=[Copy()], warn=said.append)
    assert "with an empty replay" in said[0]
    (tmp_path / "copy" / ".lock").unlink()
    train(longer, tmp_path / "copy", resume=True, warn=pytest.fail)


# --- disks and folders -----------------------------------------------------------------------------------------------

CATCH = ["train", "--env", "Catch", "--quiet"]
SAVING_OFTEN = ["--set", "checkpoint.every_updates=1", "--set", "logging.every_updates=1"]
# an update every 10 steps
SMALL_CHAIN = "train --env Chain --quiet --eager --set env.num_envs=2 --set model.hidden_sizes=[4]".split()
A2C = [sys.executable, "-m", "a2c"]


@pytest.fixture
def begun(catch_run: Path, run_dir: Path) -> Callable[[int], Config]:
    """64 steps of Catch in `run_dir`; called, the configuration with which it goes on to so many."""
    shutil.copytree(catch_run, run_dir)
    config = find_checkpoint(run_dir).config
    return lambda total: config.model_copy(update={"total_env_steps": total})


def run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files of at most so many bytes: what the system says beyond stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_stops_the_run_with_its_checkpoints_whole(run_cli, run_dir):
    """The metrics outgrow the room there is, and the run goes on when there is more."""
    command = [*SMALL_CHAIN, *SAVING_OFTEN, "--set", "logging.trackers=[]", "--run-dir", run_dir]
    with room_for(14_000):
        done = run_cli(*command)
    assert_one_sentence(done, 2, "cannot be written", "File too large", f"a2c resume {run_dir}")
    steps = [read_checkpoint(file).env_steps for file in step_files(run_dir / "checkpoints")]
    assert len(steps) == 3
    assert not list(run_dir.rglob(".*.tmp"))
    assert_one_sentence(run_cli(*command), 2, "holds a run already")
    total = steps[-1] + 50
    assert run_cli("resume", run_dir, "--steps", total, "--quiet").returncode == 0
    rows = lines(run_dir)
    assert [row["updates"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["env_steps"] == total


def test_a_file_that_cannot_be_written_is_named(begun, run_dir):
    config, file = begun(128), run_dir / "metrics.jsonl"
    file.unlink(missing_ok=True)
    file.mkdir()
    with pytest.raises(UserError, match=rf"^{file} cannot be written \(Is a directory\): the run is stopped"):
        train(config, run_dir, resume=True)


def test_a_disk_too_small_for_the_first_checkpoint_leaves_nothing_half_written(run_cli, run_dir):
    with room_for(10_000):
        done = run_cli(*CATCH, "--run-dir", run_dir)
    assert_one_sentence(done, 2, "cannot be written", "not begun", "run the same command again")
    assert [path.name for path in run_dir.rglob("*") if path.is_file()] == [".lock"]
    assert run_cli(*CATCH, "--steps", "256", "--run-dir", run_dir).returncode == 0  # the same command, with room


def test_a_file_that_finds_no_room_is_named(tmp_path):
    """The system names no file when a write fails, and the command line prints the error's file."""
    with room_for(10), pytest.raises(OSError, match="File too large") as raised:
        write_atomically(tmp_path / "file", b"0" * 100)
    assert raised.value.filename == str(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_result_whose_reader_has_left_is_no_mistake():
    """`a2c eval RUN --json /dev/stdout | head -1` ends silently."""
    code = "import pathlib, sys; from a2c.run.files import write_result; "
    code += "write_result(pathlib.Path('/dev/stdout'), 'x' * 2**20)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"BrokenPipeError" in process.stderr.read().splitlines()[-1]  # which a command turns into 141


def in_a_namespace(script: str, *arguments: object) -> subprocess.CompletedProcess:
    """Run a shell script that may mount, where nobody else sees it."""
    return run("unshare", "--map-root-user", "--mount", "sh", "-euc", script, "sh", *arguments)


may_mount = pytest.mark.skipif(
    shutil.which("unshare") is None or in_a_namespace("mount -t tmpfs none /mnt").returncode != 0,
    reason="needs user namespaces that may mount",
)


@pytest.mark.integration
@may_mount
def test_a_disk_that_fills_up_leaves_a_run_that_is_whole(tmp_path):
    """Really no space left: a tmpfs with room for two checkpoints of 5 MB."""
    script = 'mount -t tmpfs -o size=12m none "$1"; shift; exec "$@"'
    options = ["--set", "checkpoint.keep=100", *SAVING_OFTEN]
    done = in_a_namespace(script, tmp_path, *A2C, *CATCH, *options, "--run-dir", tmp_path / "run")
    assert_one_sentence(done, 2, "No space left on device", "whole up to its last checkpoint")


@pytest.mark.integration
@may_mount
def test_a_read_only_folder_is_one_sentence(tmp_path):
    script = 'mount -t tmpfs none "$1"; mkdir "$1/run"; mount -o remount,ro "$1"; shift; exec "$@"'
    for folder in (tmp_path / "run", tmp_path / "new"):
        done = in_a_namespace(script, tmp_path, *A2C, *CATCH, "--run-dir", folder)
        assert_one_sentence(done, 2, str(folder), "Read-only file system")


def test_a_lock_that_no_disk_has_room_for_is_told_in_one_sentence(tmp_path):
    """A limit of the system stands for the full disk."""
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        with pytest.raises(UserError, match=r"\.lock, the lock of the folder, cannot be written: File too large"):
            FolderLock(tmp_path).take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


def test_a_run_folder_never_writes_through_links_that_lie_in_it(begun, run_dir, tmp_path):
    """A stranger's run folder must not reach what is outside of it."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in (".metrics.jsonl.tmp", ".config.yaml.tmp", ".evaluations.jsonl.tmp", "checkpoints/.best.npz.tmp"):
        (run_dir / name).symlink_to(precious)
    (run_dir / "checkpoints" / ".step-000000000128.npz.tmp").symlink_to(precious)
    for name in ("metrics.jsonl", "config.yaml"):
        (run_dir / name).unlink()
        (run_dir / name).symlink_to(precious)
    train(begun(128), run_dir, resume=True)
    assert precious.read_text() == "precious"
    (run_dir / ".lock").unlink()
    (run_dir / ".lock").symlink_to(precious)
    with pytest.raises(UserError, match=r"\.lock, the lock of the folder, cannot be written"):
        train(begun(192), run_dir, resume=True)
    assert precious.read_text() == "precious"


def test_a_folder_of_a_run_that_is_a_link_is_refused(begun, run_dir, tmp_path):
    (run_dir / "checkpoints").rename(tmp_path / "elsewhere")
    (run_dir / "checkpoints").symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    with pytest.raises(UserError, match="checkpoints is a link"):
        train(begun(128), run_dir, resume=True)
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


def test_an_incident_is_not_written_through_links(run_dir, tmp_path):
    """A stranger may know at which step a run will fail."""
    config = sick_config("crash")
    with pytest.raises(CrashError, match="is in"):
        train(config, run_dir)
    copied = run_dir / "incidents" / "step-000000000128" / "checkpoints"
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for file in copied.iterdir():
        file.unlink()
        file.symlink_to(precious)
    with pytest.raises(CrashError, match="is in"):
        train(config, run_dir, resume=True)
    assert precious.read_text() == "precious"
    shutil.rmtree(copied)
    (tmp_path / "outside").mkdir()
    copied.symlink_to(tmp_path / "outside")
    with pytest.raises(CrashError, match=r"could not be written .a link lies there"):
        train(config, run_dir, resume=True)
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("what", ["pipe", "link to a device", "huge number", "deep list"])
def test_metrics_that_are_no_lines_of_metrics_are_dropped(begun, run_dir, what):
    file = run_dir / "metrics.jsonl"
    kept = file.read_text()
    if what in ("pipe", "link to a device"):
        file.unlink()
        kept = ""
        os.mkfifo(file) if what == "pipe" else file.symlink_to("/dev/zero")
    else:
        with file.open("a") as stream:
            stream.write(f'{{"env_steps": {"9" * 4000 if what == "huge number" else "[" * 200_000}}}\n')
    train(begun(128), run_dir, resume=True)
    assert file.is_file() and not file.is_symlink()
    assert file.read_text().startswith(kept)
    assert len(lines(run_dir)) == len(kept.splitlines()) + 1


def test_only_what_is_damaged_is_passed_over(run_dir, tmp_path):
    """Of a newer version, say: going on from the one before would drop what that version wrote."""
    config = small_config(env={"id": "Catch"}, total_env_steps=64)
    train(config, run_dir)
    latest = step_files(run_dir / "checkpoints")[-1]
    arrays = read_archive(latest)
    rewritten(latest, lambda meta: meta.update(format=99))
    longer = config.model_copy(update={"total_env_steps": 128})
    with pytest.raises(UserError, match="format '99'"):
        train(longer, run_dir, resume=True)
    write_archive(latest, arrays)
    misnamed = latest.with_name("step-000009999999.npz")
    latest.rename(misnamed)
    said = []
    assert train(longer, run_dir, resume=True, warn=said.append).counters.env_steps == 128
    assert "holds 64 steps, which is not what its name says" in said[0]
    assert misnamed.with_suffix(".damaged").exists()  # set aside, not deleted


def test_the_best_is_a_last_resort(run_dir):
    config = small_config(env={"id": "Catch"}, total_env_steps=1280, checkpoint={"every_updates": 10}, runtime=GRAPH)
    train(config, run_dir)
    best = run_dir / "checkpoints" / "best.npz"
    assert best.exists()
    for file in step_files(run_dir / "checkpoints"):
        file.unlink()
    said = []
    assert train(config, run_dir, resume=True, warn=said.append).counters.env_steps == 1280
    assert "no checkpoint but best.npz" in said[0]


def test_whoever_comes_second_goes_on_from_what_the_first_left(begun, run_dir, monkeypatch):
    """The checkpoint is chosen under the lock: chosen before it, the other's later ones would be dropped."""
    longer = begun(96)
    with FolderLock(run_dir) as lock, monkeypatch.context() as patch:
        lock.take()
        patch.setattr("a2c.run.folder.find_checkpoint", lambda *_: pytest.fail("chosen before the lock"))
        with pytest.raises(UserError, match="Another process"):
            train(longer, run_dir, resume=True)
    train(longer, run_dir, resume=True)
    assert train(longer, run_dir, resume=True).counters.env_steps == 96


def test_steps_beyond_what_can_be_counted_are_refused_before_anything_is_written(begun, run_cli, run_dir):
    before = sorted((run_dir / "checkpoints").iterdir())
    done = run_cli("resume", run_dir, "--steps", 10**19)
    assert_one_sentence(done, 2, "--steps")
    assert sorted((run_dir / "checkpoints").iterdir()) == before


# --- signals and restarts --------------------------------------------------------------------------------------------


def started(*command: object, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [str(word) for word in command],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},  # says where it was, should it crash
        **options,
    )


def has_lines(run_dir: Path) -> bool:
    file = run_dir / "metrics.jsonl"
    return file.exists() and len(file.read_text().splitlines()) > 2


@pytest.mark.integration
@pytest.mark.parametrize("number", StopSignal.SIGNALS)
def test_a_signal_saves_and_tells_how_to_go_on(run_dir, number):
    command = [*A2C, *(word for word in CATCH if word != "--quiet")]
    process = started(*command, "--steps", 10_000_000, *SAVING_OFTEN[2:], "--run-dir", run_dir, preexec_fn=heed_sigint)
    wait_for(lambda: has_lines(run_dir), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (128 + number, "")
    if number != signal.SIGHUP:  # then nobody reads it
        assert out.splitlines()[-1] == f"  a2c resume {run_dir}"
    assert find_checkpoint(run_dir).env_steps >= lines(run_dir)[-1]["env_steps"] > 0


def test_the_first_signal_is_noted_the_second_is_not_and_an_ignored_hangup_stays_so():
    before = {number: signal.getsignal(number) for number in StopSignal.SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.signal is None
            signal.raise_signal(signal.SIGTERM)
            assert stop.signal == signal.SIGTERM
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) == before[signal.SIGINT]
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
    assert {number: signal.getsignal(number) for number in StopSignal.SIGNALS} == before


def test_sigusr1_asks_to_stop_and_is_neither_a_first_signal_nor_a_second():
    """A parent passes a signal on as SIGUSR1, before or after the same signal has come to all processes of a job."""
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGUSR1)
        assert stop.signal == signal.SIGUSR1
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
        assert stop.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("gone", "number"), [(BrokenPipeError(), signal.SIGPIPE), (OSError(errno.EIO, "gone"), signal.SIGHUP)]
)
def test_a_terminal_or_reader_that_is_gone_stops_the_run_with_a_checkpoint(begun, run_dir, gone, number):
    class Gone(Progress):
        def show(self, *_):
            raise gone

    summary = train(begun(640), run_dir, resume=True, progress=Gone())
    assert summary.signal == number
    assert find_checkpoint(run_dir).env_steps == summary.counters.env_steps == 128  # the first line shown


def test_a_line_that_a_reader_is_too_slow_for_is_lost_and_the_run_goes_on():
    end, start = os.pipe()
    os.set_blocking(start, False)
    with StopSignal() as stop, open(end, "rb", 0) as reader, open(start, "wb", 0) as pipe:  # noqa: PTH123
        while pipe.write(bytes(2**16)) is not None:
            pass
        with open(start, "w", closefd=False) as stdout:
            show = partial(print, file=stdout, flush=True)
            stop.watch(show, "too much")
            assert stop.signal is None
            reader.read(2**20)
            stop.watch(show, "shown")
        assert reader.read(2**20).endswith(b"shown\n")


def test_a_full_disk_under_what_is_printed_is_told_once_the_run_is_saved(begun, run_dir):
    class Full(Progress):
        def tick(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"No space left on device.*stopped after 96 steps and saved; .*`a2c resume"):
        train(begun(640), run_dir, resume=True, progress=Full())
    assert find_checkpoint(run_dir).env_steps == 96


@pytest.mark.integration
def test_a_run_whose_lines_find_no_space_ends_with_one_sentence(run_dir):
    """`a2c train > log` on a full disk."""
    command = [*A2C, *(word for word in CATCH if word != "--quiet"), "--steps", 10_000, "--run-dir", run_dir]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(list(map(str, command)), stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "cannot be written: No space left on device" in ended.stderr


@pytest.mark.integration
def test_a_hangup_that_is_ignored_stays_so(run_dir):
    """As under nohup."""
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = started(*A2C, *CATCH, "--steps", 20_480, *SAVING_OFTEN[2:], "--run-dir", run_dir, preexec_fn=ignore)
    wait_for(lambda: has_lines(run_dir), process)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=120) == 0


@pytest.mark.integration
def test_a_reader_that_leaves_ends_the_run_with_a_checkpoint(run_dir):
    """`a2c train | head -2`."""
    command = [*A2C, *(word for word in CATCH if word != "--quiet")]
    process = started(*command, "--steps", 10_000_000, *SAVING_OFTEN[2:], "--run-dir", run_dir)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 128 + signal.SIGPIPE
    assert process.stderr.read() == ""
    assert find_checkpoint(run_dir).env_steps > 0


@pytest.mark.integration
def test_a_second_signal_leaves_at_once(run_dir):
    """The first asks to stop after the update under way, which here takes minutes."""
    slow = textwrap.dedent("""
        import time, gymnasium as gym
        class Slow(gym.Env):
            observation_space = gym.spaces.Box(-1, 1, (2,)); action_space = gym.spaces.Discrete(2)
            def reset(self, **_): return self.observation_space.sample(), {}
            def step(self, action):
                open("stepping", "w").close()
                for _ in range(6000): time.sleep(0.01)
        gym.register("Slow-v0", Slow)
    """)
    run_dir.mkdir()
    (run_dir / "slow.py").write_text(slow)
    command = [sys.executable, "-m", "a2c", "train", "--env", "slow:Slow-v0", "--quiet", "--run-dir", "run"]
    process = started(*command, cwd=run_dir, preexec_fn=heed_sigint)
    wait_for((run_dir / "stepping").exists, process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) == -signal.SIGTERM
    assert find_checkpoint(run_dir / "run").env_steps == 0


def test_auto_resume_starts_goes_on_and_is_content(run_cli, run_dir):
    """What a cluster does: the same command again and again, whatever happened before."""
    command = [*SMALL_CHAIN, "--steps", 100, *SAVING_OFTEN, "--run-dir", run_dir, "--auto-resume"]
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "checkpoints" / ".step-000000000000.npz.tmp").write_bytes(b"killed in the very first save")
    assert run_cli(*command).returncode == 0
    before = weights(run_dir)
    for late in step_files(run_dir / "checkpoints")[1:]:
        late.unlink()
    assert run_cli(*command).returncode == 0
    assert weights(run_dir) == before
    files = {file: file.stat().st_mtime_ns for file in run_dir.rglob("*.npz")}
    assert run_cli(*command).returncode == 0  # nothing left to do
    assert {file: file.stat().st_mtime_ns for file in run_dir.rglob("*.npz")} == files


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--env", "Catch", "--algorithm", "ppo", "--steps", "4k"], "was started with algorithm.name=a2c, not ppo"),
        (["--seed", "5"], "was started with seed=7, not 5"),  # and not with Pong's recipe, which nobody named
        (["--mode", "graph"], "was started with runtime.mode=eager, not graph"),
        (["--set", "seed=5", "--steps", "4k"], "algorithm.normalize_advantages=False"),  # Catch, not the default game
    ],
)
def test_auto_resume_names_what_differs_from_the_run(run_cli, catch_run, given, sentence):
    assert_one_sentence(run_cli("train", "--auto-resume", "--run-dir", catch_run, *given), 2, sentence)


def test_checkpoints_by_the_clock(run_dir):
    for every_minutes, checkpoints in ((1e-6, 4), (0, 2)):  # 0: never; there is that of the start, and that of the end
        saving = {"every_updates": 10**6, "every_minutes": every_minutes, "keep": 99}
        folder = run_dir / str(checkpoints)
        train(sick_config("none", checkpoint=saving, total_env_steps=48), folder)
        assert len(step_files(folder / "checkpoints")) == checkpoints


# --- strangers -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_does_not_decide_which_module_is_run(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import gymnasium as gym\nopen('executed', 'a').close()\n"
        "gym.register('Mine-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv', max_episode_steps=20)\n"
    )
    config = sick_config("none", env={"id": "mine:Mine-v0"}, total_env_steps=32)
    train(config, "run")
    Path("executed").unlink()
    sys.modules.pop("mine")
    with pytest.raises(UserError, match="say so with --env mine:Mine-v0"):
        evaluate("run", episodes=1)
    assert_one_sentence(run_cli("resume", "run"), 2, "--env mine:Mine-v0")
    assert_one_sentence(run_cli("train", "--run-dir", "run", "--auto-resume"), 2, "--env mine:Mine-v0")
    assert not Path("executed").exists()
    with pytest.raises(UserError, match="was trained on mine:Mine-v0, not on CartPole-v1"):
        evaluate("run", episodes=1, env_id="CartPole-v1")
    assert evaluate("run", episodes=1, env_id="mine:Mine-v0").episodes == 1
    done = run_cli("resume", "run", "--env", "mine:Mine-v0", "--steps", 64, "--quiet")
    assert done.returncode == 0, done.stderr
    Path("executed").unlink()
    assert_one_sentence(run_cli("train", "--config", "run/config.yaml"), 2, "say so with --env mine:Mine-v0")
    assert not Path("executed").exists()
    again = run_cli("train", "--config", "run/config.yaml", "--env", "mine:Mine-v0", "--run-dir", "again", "--quiet")
    assert again.returncode == 0, again.stderr


def test_a_checkpoint_of_another_game_is_refused(pong_run):
    with pytest.raises(UserError, match="was trained on Pong, not on Breakout"):
        evaluate(pong_run, env_id="Breakout")
    assert evaluate(pong_run, env_id="ALE/Pong-v5", episodes=1).env == "Pong"


def test_another_version_of_an_environment_is_another_environment(run_dir):
    config = small_config(env={"id": "CartPole-v1"}, model={"name": "mlp"}, total_env_steps=32)
    train(config, run_dir)
    with pytest.raises(UserError, match="was trained on CartPole-v1, not on CartPole-v0"):
        evaluate(run_dir, env_id="CartPole-v0")
