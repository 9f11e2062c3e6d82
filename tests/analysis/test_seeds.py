"""Several seeds of one configuration: as processes by the command line, and in this process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import assert_one_sentence, press_ctrl_c, rewritten, small_config
from in_process import InProcess
from killing import assert_same_checkpoints

from a2c.analysis.arms import steps_done
from a2c.analysis.seeds import train_seeds
from a2c.config import UserError
from a2c.run.step_files import step_files
from a2c.run.training import train
from a2c.run.view import View

SMALL = ["--env", "Catch", "--set", "env.num_envs=4", "--set", "logging.every_updates=1", "--set", "runtime.threads=1"]


def a2c(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "a2c", *words], capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.mark.integration
def test_each_seed_is_trained_as_alone_and_what_is_finished_is_not_trained_again(tmp_path):
    config = small_config(env={"id": "Catch"}, logging={"trackers": []})
    place, folder = InProcess(), tmp_path / "all"
    found = train_seeds(config, range(3, 5), folder, jobs=1, place=place, view=View())
    assert found == [folder / "runs" / f"seed-s{seed}" for seed in (3, 4)]
    assert [steps_done(run) for run in found] == [320, 320]
    assert train_seeds(config, range(3, 5), folder, jobs=1, place=place, view=View()) == found
    assert place.names == ["seed, Catch, seed 3", "seed, Catch, seed 4"]
    train(config.model_copy(update={"seed": 4}), tmp_path / "alone")
    assert_same_checkpoints(tmp_path / "alone/checkpoints", folder / "runs/seed-s4/checkpoints")
    free = small_config(env={"id": "Catch"}, logging={"trackers": ["tensorboard"]})  # may change, as on resume
    assert train_seeds(free, range(3, 5), folder, jobs=1, place=place, view=View()) == found
    other = small_config(env={"id": "Catch"}, logging={"trackers": []}, algorithm={"name": "ppo"})
    with pytest.raises(UserError, match=r"holds runs of other settings: algorithm\.name is 'a2c' there and 'ppo' here"):
        train_seeds(other, range(3, 5), folder, jobs=1, place=place, view=View())
    with pytest.raises(UserError, match="is a run itself"):
        train_seeds(config, range(2), tmp_path / "alone", jobs=1, place=place, view=View())


def test_a_seed_that_was_stopped_in_its_last_evaluation_is_evaluated(tmp_path):
    """Its checkpoint says that it was not, and its last line of metrics is there."""
    config = small_config(env={"id": "Catch"}, logging={"trackers": []}, evaluation={"episodes": 5}, total_env_steps=32)
    train_seeds(config, range(1), tmp_path, jobs=1, place=InProcess(), view=View())
    log = tmp_path / "runs/seed-s0/evaluations.jsonl"
    evaluated = json.loads(log.read_text())
    log.unlink()
    rewritten(step_files(log.parent / "checkpoints")[-1], lambda meta: meta["counters"].update(evaluated=0))
    train_seeds(config, range(1), tmp_path, jobs=1, place=InProcess(), view=View())
    assert json.loads(log.read_text())["returns"] == evaluated["returns"]


@pytest.mark.integration
def test_a_module_of_the_current_folder_hides_no_other_in_the_processes_of_seeds_and_launch(tmp_path):
    (tmp_path / "yaml.py").write_text("raise ImportError('not this one')\n")
    script = str(Path(sys.executable).with_name("a2c"))
    for command in (["train", "--seeds", "1"], ["launch", "--workers", "1", "--", "train"]):
        words = [script, *command, *SMALL, "--steps", "320", "--run-dir", command[0]]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.integration
def test_seeds_are_trained_as_each_alone_stopped_and_resumed(tmp_path, run_cli):
    command = ["train", *SMALL, "--steps", "12000", "--seed", "3", "--seeds", "2", "--jobs", "2", "--run-dir", "all"]
    metrics = [tmp_path / f"all/runs/seed-s{seed}/metrics.jsonl" for seed in (3, 4)]
    stopped = press_ctrl_c(
        [sys.executable, "-m", "a2c", *command],
        lambda: all(file.exists() and file.stat().st_size for file in metrics),
        cwd=tmp_path,
        timeout=300,
    )
    assert (stopped.returncode, stopped.stderr) == (130, "")
    assert "The same command with --run-dir all continues" in stopped.stdout
    again = run_cli(*command, cwd=tmp_path)  # trains in processes of its own
    assert (again.returncode, again.stderr) == (0, "")
    rows = [line.split() for line in again.stdout.splitlines() if line.startswith("seed-s")]
    assert [row[0] for row in rows] == ["seed-s3", "seed-s4"], again.stdout
    assert all({"12,032", "100%", "finished"} <= {*row} for row in rows), rows
    alone = a2c("train", *SMALL, "--steps", "12000", "--seed", "4", "--run-dir", "alone", "-q", cwd=tmp_path)
    assert alone.returncode == 0
    latest = "step-000000012032.npz"
    for folder in (tmp_path / "alone/checkpoints", tmp_path / "all/runs/seed-s4/checkpoints"):
        for file in folder.iterdir():
            if file.name != latest:
                file.unlink()  # a signal adds one
    assert_same_checkpoints(tmp_path / "alone/checkpoints", tmp_path / "all/runs/seed-s4/checkpoints")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--jobs", "2"], "--jobs and --cluster are for several runs; give --seeds too"),
        (["--cluster", "auto"], "--jobs and --cluster are for several runs; give --seeds too"),
        (["--seeds", "2", "--strategy", "multiworker"], "--seeds starts processes of its own"),
        (
            ["--seeds", "2", "--run-dir", "/dev/null/x"],
            "/x cannot be used: /dev/null is not a folder",
        ),
        (["--seeds", "0"], "'--seeds'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, run_cli, arguments, said):
    assert_one_sentence(run_cli("train", "--env", "Catch", *arguments, cwd=tmp_path), 2, said)
    assert list(tmp_path.iterdir()) == []
