"""`a2c runs`: a line for each run of a folder."""

import json
import os

import pytest
from run_folders import make_run

from a2c.run.lock import FolderLock

KEYS = {"run", "game", "algorithm", "seed", "env_steps", "total_env_steps", "episode_return_mean"}
KEYS |= {"best_return_mean", "steps_per_second", "state", "changed"}


@pytest.fixture
def folder(tmp_path):
    """Two runs of Pong, one stopped and one finished, and below a folder one of Catch without a line yet."""
    made = [
        make_run(tmp_path / "runs" / "stopped", [50.0, *[3.0] * 9, 4.0, 2.0], total_env_steps=3200),
        make_run(tmp_path / "runs" / "finished", [1.0] * 32, total_env_steps=3200, seed=7),
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


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("changed", ["new", "finished", "stopped"]),
        ("run", ["finished", "new", "stopped"]),
        ("game", ["new", "stopped", "finished"]),
        ("steps", ["finished", "stopped", "new"]),
        ("return", ["stopped", "finished", "new"]),
    ],
)
def test_runs_are_sorted(run_cli, folder, order, wanted):
    found = names(listed(run_cli, folder, "--sort", order))
    assert found == wanted if order != "game" else found[0] == wanted[0]


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
    assert table.split("\n")[0].split() == "run game algorithm seed steps % return best steps/s state changed".split()
    assert "finished" in table and "100%" in table and "2001-09-09" in table
    for nowhere in (folder / "plots", folder / "nowhere"):
        ended = run_cli("runs", nowhere)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
