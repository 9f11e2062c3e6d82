"""`a2c compare` as a user meets it: real processes, real runs, real signals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import press_ctrl_c

from a2c.analysis.convergence import steps_done
from a2c.cli import main

TINY = {
    "env": {"id": "Bandit", "num_envs": 4},
    "algorithm": {"rollout_length": 8},
    "logging": {"every_updates": 1},
    "total_env_steps": 320,
}


def compare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "a2c", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return "tiny.yaml"


def test_where_and_growth_alone(tmp_path, tiny):
    arguments = ["--eager", "--config", tiny, "--only", "where", "--only", "growth", "--updates", "3", "--out", "out"]
    result = compare(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    values = json.loads((tmp_path / "out/results.json").read_text())
    assert values["where"]["exact"]["update"] is None
    assert values["where"]["exact"]["updates"] == 3
    assert [len(distances) for distances in values["growth"].values()] == [3, 3]
    assert not any(group["max_abs"] for update in values["growth"]["exact"] for group in update.values())
    assert values["why"] is values["convergence"] is None
    assert "graph exact and eager gave the same bits in all 3 updates" in result.stdout
    assert not (tmp_path / "out/runs").exists()


def test_a_stopped_comparison_goes_on_with_what_is_missing(tmp_path):
    """Eager against graph on Catch; stopped in the first run, and again after one was finished."""
    catch = ["--eager", "--only", "convergence", "--seeds", "1", "--steps", "4000", "--jobs", "1", "--out", "out"]
    quick = ["--set", "logging.every_updates=1", "--set", "env.num_envs=4"]
    command = [sys.executable, "-m", "a2c", "compare", *catch, *quick]
    runs = tmp_path / "out/runs"

    def stop_when(is_far_enough):
        stopped = press_ctrl_c(command, is_far_enough, cwd=tmp_path, timeout=120)
        assert stopped.returncode == 130
        assert "Stopped. The same command goes on with what is missing." in stopped.stdout

    stop_when(lambda: steps_done(runs / "eager-s0") > 0)
    assert 0 < steps_done(runs / "eager-s0") < 4000
    stop_when(lambda: steps_done(runs / "graph-fast-s0") > 0)
    eager = (runs / "eager-s0/metrics.jsonl").stat().st_mtime_ns
    result = compare(*catch, *quick, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert (runs / "eager-s0/metrics.jsonl").stat().st_mtime_ns == eager
    text = " ".join(result.stdout.split())
    assert "graph exact: identical to eager bit for bit in its one seed" in text
    assert "a 95 % interval needs 6" in text
    assert len(list(runs.iterdir())) == 3


def test_values_configurations_and_runs_are_compared(tmp_path, tiny):
    varied = compare(
        "--vary", "optimizer.learning_rate=1e-3,0.1", "--config", tiny, "--seeds", "1", "--out", "a", cwd=tmp_path
    )
    assert (varied.returncode, varied.stderr) == (0, "")
    labels = ["learning_rate=1e-3", "learning_rate=0.1"]
    assert [
        arm["arm"] for arm in json.loads((tmp_path / "a/results.json").read_text())["convergence"]["summaries"]
    ] == labels
    runs = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "a/runs").iterdir())
    again = compare(*runs, "--out", "b", "--threshold", "0.1", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    summaries = json.loads((tmp_path / "b/results.json").read_text())["convergence"]["summaries"]
    assert [summary["arm"] for summary in summaries] == [
        "learning_rate=0.1",
        "learning_rate=0.001",
    ]  # in the order of their names
    longer = {**TINY, "algorithm": {"rollout_length": 4}, "total_env_steps": 640}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(longer))
    files = compare(tiny, "other.yaml", "--seeds", "1", "--out", "c", cwd=tmp_path)
    assert (files.returncode, files.stderr) == (0, "")
    found = json.loads((tmp_path / "c/results.json").read_text())["convergence"]
    assert [summary["arm"] for summary in found["summaries"]] == ["tiny", "other"]
    assert [run["env_steps"][-1] for run in found["runs"]] == [320, 320] == [found["budget"]] * 2
    taken = compare(tiny, "other.yaml", "--seeds", "1", "--out", "a", cwd=tmp_path)
    assert (taken.returncode, taken.stderr) == (
        2,
        "a2c: a holds another comparison (see its comparison.json); choose another --out.\n",
    )


def test_a_folder_is_taken_only_for_the_comparison_it_holds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.tex").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/comparison.json").write_text("{")
    (tmp_path / "file").touch()
    for out, sentence in (
        ("other", "other holds other files; choose another --out"),
        ("damaged", "comparison.json is damaged; delete damaged"),
        ("file", "The folder file cannot be made"),
    ):
        monkeypatch.setattr(sys, "argv", ["a2c", "compare", "--loop", "--seeds", "1", "--out", out])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert sentence in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_damaged_part_is_made_again(tmp_path, tiny):
    arguments = ["--eager", "--config", tiny, "--only", "where", "--updates", "2", "--out", "out"]
    assert compare(*arguments, cwd=tmp_path).returncode == 0
    before = json.loads((tmp_path / "out/results.json").read_text())["where"]
    (tmp_path / "out/parts/where-off-0000.json").write_text('{"update": nu')
    assert compare(*arguments, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "out/results.json").read_text())["where"] == before


def test_the_bandit(tmp_path):
    result = compare("--loop", "--seeds", "1", "--out", "out", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    final = json.loads((tmp_path / "out/results.json").read_text())["bandit"]["final_probabilities"]
    assert final["loop"][0] > 0.9 and final["array"][0] > 0.9 and final["broadcast mistake"][0] < 0.9
    assert (tmp_path / "out/bandit.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Say what to compare"),
        (["--eager", "--loop"], "not --eager and --loop"),
        (["--loop", "--only", "why"], "--only chooses parts of --eager"),
        (["--eager", "--only", "when"], "'when' is not one of 'where', 'why', 'growth', 'convergence'"),
        (["--eager", "--env", "Pong", "--env", "Qbert"], "give --env once"),
        (["--eager", "--env", "Pongg"], "There is no environment 'Pongg'"),
        (["--eager", "--set", "model.name=mlp"], "model.name=mlp does not fit"),
        (["--eager", "--seeds", "0"], "should be greater than or equal to 1"),
        (["--vary", "optimizer.rat=1,2"], "There is no key 'optimizer.rat'"),
        (["--vary", "optimizer.name=adam,sgd"], "optimizer.name='sgd' is not allowed"),
        (["--vary", "optimizer.name=adam"], "is not of the form key=a,b"),
        (["--vary", "optimizer.name"], "is not of the form key=a,b"),
        (["--vary", "optimizer.learning_rate=0.001,1e-3"], "are the same"),
        (["--vary", "algorithm.gamma=0.9,0.8", "--set", "algorithm.gamma=0.5"], "are the same"),
        (["--vary", "model.conv_layers=null,[[8,4,2]]"], "null cannot be varied"),
        (["--vary", "evaluation.episodes=1,2"], "compares nothing"),
        (["--vary", "algorithm.gamma=2020-99-99,1"], "is not of the form key=a,b"),
        (["--eager", "--set", "runtime.mode=xla"], "leave --set runtime.mode"),
        (["--eager", "--set", "runtime.numerics=fast"], "leave --set runtime.numerics"),
        (["--vary", "seed=1,2"], "--vary seed compares nothing; see --seeds"),
        (["--vary", "algorithm.gamma=0.9,0.8", "--env", "Pong", "--env", "Qbert", "--threshold", "1"], "leave it out"),
        (["catch"], "catch alone cannot be compared"),
        (["catch", "catch"], "named twice"),
        (["catch", "cach"], "There is no preset or file 'cach'"),
        (["catch", "pong"], "for different games"),
        (["catch", "pong", "--config", "atari"], "contradict each other"),
        (["runs", "catch"], "runs is not the folder of a run"),
        (["runs", "catch", "--env", "Catch"], "Runs are compared as they are"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "runs" in arguments:
        (tmp_path / "runs").mkdir()
    monkeypatch.setattr(sys, "argv", ["a2c", "compare", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert sentence in said
    assert said.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
