"""`a2c runs`: a line for each run of a folder."""

import io
import json
import os
import threading
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import evaluation, make_run

from a2c.cli.showing import print_runs
from a2c.run.lock import FolderLock, is_locked
from a2c.show.listing import list_runs

KEYS = {"run", "game", "algorithm", "seed", "env_steps", "total_env_steps", "episode_return_mean"}
KEYS |= {"best_return_mean", "evaluation_mean", "steps_per_second", "state", "changed"}


@pytest.fixture
def folder(tmp_path):
    """Two runs of Pong, one stopped and one finished, and below a folder one of Catch without a line yet."""
    made = [
        make_run(tmp_path / "runs" / "stopped", [50.0, *[3.0] * 9, 4.0, 2.0], total_env_steps=3200),
        make_run(tmp_path / "runs" / "finished", [3.0] * 32, total_env_steps=3200, seed=7),
        make_run(tmp_path / "runs" / "more" / "new", [], env={"id": "Catch"}),
    ]
    for number, run in enumerate(made):
        (run / "checkpoints").mkdir()
        for file in ("metrics.jsonl", "config.yaml"):
            os.utime(run / file, (1e9 + 3600 * number, 1e9 + 3600 * number))
    (tmp_path / "runs" / "plots").mkdir()
    return tmp_path / "runs"


def listed(run_cli, *words) -> list[dict]:
    ended = run_cli("runs", *words, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def names(found: list[dict]) -> list[str]:
    return [run["run"].rsplit("/", 1)[-1] for run in found]


def test_every_run_below_a_folder_is_listed_with_its_numbers(run_cli, folder):
    new, finished, stopped = listed(run_cli, folder)
    assert KEYS == set(new) == set(finished) == set(stopped)
    assert (new["game"], new["env_steps"], new["episode_return_mean"], new["state"]) == ("Catch", 0, None, "stopped")
    assert (finished["env_steps"], finished["seed"], finished["state"]) == (3200, 7, "finished")
    assert (stopped["episode_return_mean"], stopped["best_return_mean"]) == (2.0, 4.0)  # of 100 games at least
    assert stopped["state"] == "stopped"


def test_an_agent_without_metrics_is_as_far_as_its_evaluation(run_cli, folder):
    played = [evaluation(1600, 0.5), evaluation(3200, 1.0)]
    agent = make_run(folder / "agent", [], evaluations=played, total_env_steps=3200)
    (agent / "checkpoints").mkdir()
    found = listed(run_cli, agent)[0]
    assert (found["env_steps"], found["state"], found["episode_return_mean"]) == (3200, "finished", None)
    assert found["evaluation_mean"] == 1.0


def test_a_run_without_metrics_is_as_far_as_its_latest_checkpoint(run_cli, folder):
    for name in ("step-000000000016.npz", "step-000000000032.npz", "step-9.npz"):
        (folder / "more" / "new" / "checkpoints" / name).touch()
    found = listed(run_cli, folder / "more")[0]
    assert (found["env_steps"], found["state"]) == (32, "stopped")


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("changed", ["new", "finished", "stopped"]),
        ("run", ["finished", "new", "stopped"]),
        ("game", ["new", "finished", "stopped"]),
        ("steps", ["finished", "stopped", "new"]),
        ("return", ["finished", "stopped", "new"]),
        ("best", ["stopped", "finished", "new"]),
        ("speed", ["stopped", "finished", "new"]),
        ("state", ["finished", "new", "stopped"]),
        ("algorithm", ["finished", "new", "stopped"]),
    ],
)
def test_runs_are_sorted(run_cli, folder, order, wanted):
    """Runs that are equal in it stay in the order of their paths."""
    file = folder / "stopped" / "metrics.jsonl"
    file.write_text(file.read_text().replace('"steps_per_second": 1.0', '"steps_per_second": 2.0'))
    os.utime(file, (1e9, 1e9))
    assert names(listed(run_cli, folder, "--sort", order)) == wanted


def test_a_run_that_a_process_works_in_is_running(run_cli, folder):
    with FolderLock(folder / "finished") as lock:
        lock.take()
        states = {name: run["state"] for run in listed(run_cli, folder) for name in names([run])}
    assert states == {"new": "stopped", "finished": "running", "stopped": "stopped"}


def test_a_damaged_run_is_told_and_the_others_are_listed(run_cli, folder):
    (folder / "stopped" / "config.yaml").write_text("env: [")
    ended = run_cli("runs", folder, "--json")
    assert names(json.loads(ended.stdout)) == ["new", "finished"]
    assert ended.returncode == 1
    assert "stopped/config.yaml is not valid YAML" in ended.stderr


def test_the_table_is_of_one_run_too_and_nothing_is_told_in_one_sentence(run_cli, folder):
    table = run_cli("runs", folder / "finished").stdout
    assert (
        table.split("\n")[0].split() == "run game algorithm seed steps % return best eval steps/s state changed".split()
    )
    assert "finished" in table and "100%" in table and "2001-09-09" in table
    for nowhere in (folder / "plots", folder / "nowhere"):
        ended = run_cli("runs", nowhere)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


def test_links_to_runs_are_listed_links_to_folders_of_runs_are_not_followed_and_incidents_are_no_runs(
    run_cli, folder, tmp_path
):
    (folder / "linked").symlink_to(folder / "finished")
    (folder / "everything").symlink_to(tmp_path)
    incident = make_run(folder / "stopped" / "incidents" / "step-1", [1.0])
    (incident / "checkpoints").mkdir()
    assert names(listed(run_cli, folder, "--sort", "run")) == ["finished", "linked", "new", "stopped"]
    assert names(listed(run_cli, incident)) == ["step-1"]


def test_a_damaged_run_that_is_named_is_refused(run_cli, folder):
    (folder / "stopped" / "config.yaml").write_text("env: [")
    ended = run_cli("runs", folder / "stopped")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)


def test_a_narrow_terminal_gets_fewer_columns_and_each_run_one_line(folder, monkeypatch):
    listed, _ = list_runs(folder, "run", print)
    for width, columns in ((40, 4), (80, 7), (120, 12)):
        console = Console(file=io.StringIO(), width=width)
        monkeypatch.setattr("a2c.cli.showing.wide", lambda shown=console: shown)
        print_runs(listed, folder)
        lines = console.file.getvalue().splitlines()
        assert [len(lines), len(lines[0].split())] == [4, columns]
        assert [line.split()[0] for line in lines[1:]] == [str(Path(run.run).relative_to(folder)) for run in listed]


def test_asking_whether_a_run_is_under_way_keeps_nobody_from_starting(tmp_path):
    """Who asks has the lock for a moment."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            is_locked(tmp_path)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(200):
            with FolderLock(tmp_path) as lock:
                lock.take()
    finally:
        over.set()
        asking.join()
