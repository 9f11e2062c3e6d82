"""`a2c compare` as a user meets it: its jobs in this process first, then real processes and real signals."""

import json
import signal
import sys
from pathlib import Path

import pytest
import yaml
from conftest import assert_one_sentence, press_ctrl_c
from in_process import InProcess

from a2c.analysis.arms import steps_done
from a2c.analysis.compare import compare_modes, compare_targets, compare_values
from a2c.analysis.report import verdict
from a2c.analysis.request import Request
from a2c.analysis.targets import ALGORITHMS, CONFIGURATIONS, kind_of
from a2c.config import UserError, build_config, load_config
from a2c.run.step_files import step_file
from a2c.run.training import train

TINY = {
    "env": {"id": "Bandit", "num_envs": 4},
    "algorithm": {"rollout_length": 8},
    "logging": {"every_updates": 1},
    "total_env_steps": 320,
}


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return "tiny.yaml"


def test_what_only_costs_time_is_left_out_of_a_comparison(tmp_path):
    logging = {"trackers": ["tensorboard"], "histograms": True}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"logging": logging, "evaluation": {"episodes": 5}}))
    config = Request(config=str(tmp_path / "mine.yaml")).load(env="Catch")
    assert (config.logging.trackers, config.logging.histograms, config.evaluation.episodes) == ((), False, 0)


@pytest.mark.integration
@pytest.mark.usefixtures("exact_numerics")
def test_where_and_growth_are_found_in_recorded_updates_and_a_damaged_part_is_made_again(tmp_path, tiny):
    """The modes of `--eager` one after the other in this process, whose numerics they set."""
    request = Request(config=str(tmp_path / tiny), updates=2, folder=tmp_path / "out", place=InProcess())
    found = compare_modes(request, ["where", "growth"])
    assert request.place.names[0].startswith("record")
    assert [name.partition("-")[0] for name in request.place.names[1:]] == ["where"] * 2 + ["growth"] * 2
    assert (found.where["exact"].update, found.where["exact"].updates) == (None, 2)
    assert found.where["fast"].stages[0].stage == "observations"
    assert [len(distances) for distances in found.growth.values()] == [2, 2]
    assert not any(group.max_abs for update in found.growth["exact"] for group in update.values())
    assert found.why is found.convergence is None
    (part,) = (name for name in request.place.names if name.endswith("-off-0000") and name.startswith("where"))
    for damaged in ('{"update": nu', "[]"):
        (tmp_path / f"out/parts/{part}.json").write_text(damaged)
        request.place.names.clear()
        assert compare_modes(request, ["where"]).where == found.where
        assert request.place.names == [part]


@pytest.mark.integration
@pytest.mark.usefixtures("exact_numerics")
@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_the_modes_of_an_algorithm_without_logits_are_compared_on_catch(tmp_path, algorithm):
    request = Request(overrides={"algorithm.name": algorithm}, updates=4, folder=tmp_path / "out", place=InProcess())
    found = compare_modes(request, ["where"])
    assert found.title.endswith("on Catch")
    assert (found.where["exact"].update, found.where["exact"].updates) == (None, 4)
    assert "gradient" in " ".join(stage.stage for stage in found.where["exact"].stages)


def test_a_stopped_comparison_trains_what_is_missing_and_only_its_folder_is_taken(tmp_path, tiny):
    """One seed of two values; stopped after the first, as by Ctrl-C."""
    text = "optimizer.learning_rate=1e-3,0.1"
    request = {"config": str(tmp_path / tiny), "seeds": 1, "assignments": ("seed=7",)}
    first = Request(**request, folder=tmp_path / "out", place=InProcess(stop_before=1))
    with pytest.raises(KeyboardInterrupt):
        compare_values(first, text)
    second = Request(**request, folder=tmp_path / "out", place=InProcess())
    found = compare_values(second, text).convergence
    labels = ["learning_rate=1e-3", "learning_rate=0.1"]
    assert [*first.place.names, *second.place.names] == [f"{label}, Bandit, seed 7" for label in labels]
    assert [summary.arm for summary in found.summaries] == labels
    assert [run.env_steps[-1] for run in found.runs] == [320] * 2
    with pytest.raises(UserError, match="holds another comparison"):
        compare_values(second, "optimizer.learning_rate=1e-3,0.2")


def test_algorithms_are_compared_by_agent_steps_and_gradient_steps(tmp_path, tiny):
    """An update of A2C makes one gradient step, one of PPO 16."""
    values = {"config": str(tmp_path / tiny), "threshold": -1.0, "seeds": 1}  # both reach it with the 100th game
    request = Request(**values, folder=tmp_path / "out", place=InProcess())
    found = compare_values(request, "algorithm.name=a2c,ppo")
    a2c, ppo = found.convergence.runs
    assert (a2c.arm, ppo.arm) == ("algorithm=a2c", "algorithm=ppo")
    assert (a2c.env_steps_to_threshold, a2c.gradient_steps_to_threshold) == (128, 4)
    assert (ppo.env_steps_to_threshold, ppo.gradient_steps_to_threshold) == (128, 64)
    few = "(1 seed; a 95 % interval needs 6)"
    assert (
        f"needed 1.00x the agent steps of algorithm=a2c to a return of -1 {few}, 16.00x its gradient steps {few}, and "
    ) in verdict(found)[0]


@pytest.mark.parametrize(
    ("targets", "told", "recipes"),
    [
        (["a2c", "ppo"], (), ["catch", "catch-ppo"]),
        (["trpo", "catch"], (), ["catch-trpo", "catch"]),
        (["a2c", "ppo"], ("Bandit",), ["atari", "vector-ppo"]),
    ],
)
def test_an_algorithm_is_compared_with_its_own_recipe_on_catch_unless_told(targets, told, recipes, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        compare_targets(Request(envs=told, folder=tmp_path, place=InProcess(stop_before=0)), targets)
    begun = json.loads((tmp_path / "comparison.json").read_text())["what"]["arms"]
    expected = [(name, load_config(config=recipe)[0].algorithm) for name, recipe in zip(targets, recipes, strict=True)]
    assert [(name, arm["algorithm"]) for name, arm in begun] == [
        (name, algorithm.model_dump(mode="json")) for name, algorithm in expected
    ]
    assert {arm["env"]["id"] for _, arm in begun} == set(told or ["Catch"])


@pytest.mark.integration
def test_configurations_of_different_lengths_are_compared_up_to_the_shorter(tmp_path, tiny):
    longer = {**TINY, "algorithm": {"rollout_length": 4}, "total_env_steps": 640}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(longer))
    request = Request(seeds=1, folder=tmp_path / "out", place=InProcess())
    found = compare_targets(request, [str(tmp_path / tiny), str(tmp_path / "other.yaml")]).convergence
    assert [summary.arm for summary in found.summaries] == ["tiny", "other"]
    assert [run.env_steps[-1] for run in found.runs] == [320, 320] == [found.budget] * 2


def test_run_folders_are_compared_by_the_command(tmp_path, run_cli):
    for name, rate in (("slow", 0.001), ("quick", 0.1)):
        train(build_config({**TINY, "optimizer": {"learning_rate": rate}}, where="test"), tmp_path / name)
    ended = run_cli("compare", "quick", "slow", "--out", "b", "--threshold", "0.1", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    summaries = json.loads((tmp_path / "b/results.json").read_text())["convergence"]["summaries"]
    assert [summary["arm"] for summary in summaries] == ["learning_rate=0.1", "learning_rate=0.001"]


@pytest.mark.integration
def test_the_bandit(tmp_path, run_cli):
    result = run_cli("compare", "--loop", "--seeds", "1", "--out", "out", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    final = json.loads((tmp_path / "out/results.json").read_text())["bandit"]["final_probabilities"]
    assert final["loop"][0] > 0.9 and final["array"][0] > 0.9 and final["broadcast mistake"][0] < 0.9
    assert (tmp_path / "out/bandit.png").stat().st_size > 1000


def test_a_folder_is_taken_only_for_the_comparison_it_holds(tmp_path, run_cli):
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
        ended = run_cli("compare", "--loop", "--seeds", "1", "--out", out, cwd=tmp_path)
        assert_one_sentence(ended, 2, sentence)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Say what to compare"),
        (["--eager", "--loop"], "not --eager and --loop"),
        (["--loop", "--only", "why"], "--only would change nothing in --loop"),
        (["--loop", "--steps", "5", "--set", "a=1"], "--steps and --set would change nothing in --loop"),
        (["--vary", "algorithm.gamma=0.9,0.8", "--updates", "50"], "--updates would change nothing in --vary"),
        (["--question", "--seeds", "8"], "--seeds would change nothing in --question"),
        (["catch", "catch-ppo", "--algorithm", "no:Thing"], "--algorithm no:Thing: there is no module 'no'"),
        (["a2c", "no.such:Thing"], "--algorithm no.such:Thing: there is no module 'no' here"),
        (["a2c", "ppo", "--model", "mlp"], "model.name=mlp does not fit"),
        (["a2c", "ppo", "--model", "no.such:net"], "--model no.such:net: there is no module 'no' here"),
        (["a2c", "ppo", "--wrapper", "no.such:Thing"], "--wrapper no.such:Thing: there is no module 'no' here"),
        (["a2c", "a:b.yaml"], "--algorithm a:b.yaml is not of the form module:name"),
        (["a2c", "ppo", "--algorithm", "dqn"], "--algorithm would change nothing in a comparison of algorithms"),
        (["--eager", "--only", "why", "--seeds", "9"], "--seeds would change nothing in --eager --only why"),
        (["--eager", "--only", "convergence", "--updates", "9"], "--updates would change nothing in --eager --only"),
        (["--vary", "optimizer.name=adam,rmsprop", "--set", f"seed={2**63 - 1}"], "seed=9223372036854775814"),
        (["--eager", "--only", "when"], "'when' is not one of 'where', 'why', 'growth', 'convergence'"),
        (["--eager", "--env", "Pong", "--env", "Qbert"], "give --env once"),
        (["--eager", "--env", "Pongg"], "There is no environment 'Pongg'"),
        (["--eager", "--set", "model.name=mlp"], "model.name=mlp does not fit"),
        (["--eager", "--seeds", "0"], "it should be 1 or more"),
        (["--vary", "optimizer.rat=1,2"], "There is no key 'optimizer.rat'"),
        (["--vary", "optimizer.name=adam,sgd"], "optimizer.name='sgd' is not allowed"),
        (["--vary", "optimizer.name=adam"], "is not of the form key=a,b"),
        (["--vary", "optimizer.name"], "is not of the form key=a,b"),
        (["--vary", "optimizer.learning_rate=0.001,1e-3"], "are the same"),
        (["--vary", "algorithm.gamma=0.9,0.8", "--set", "algorithm.gamma=0.5"], "are the same"),
        (["--vary", "model.conv_layers=null,[[8,4,2]]"], "null cannot be varied"),
        (["--vary", "evaluation.episodes=1,2"], "compares nothing"),
        (["--vary", "algorithm.gamma=!!int x,1"], "is not of the form key=a,b"),
        (["--eager", "--set", "runtime.mode=xla"], "leave --set runtime.mode"),
        (["--eager", "--set", "runtime.numerics=fast"], "leave --set runtime.numerics"),
        (["--vary", "env=Pong,Catch"], "env is a section; set one of its keys, such as env.id"),
        (["--vary", "config=a2c,pong"], "There is no key 'config'"),
        (["--vary", "self=1,2"], "There is no key 'self'"),
        (["--vary", "seed=1,2"], "--vary seed compares nothing; see --seeds"),
        (["--vary", "algorithm.gamma=0.9,0.8", "--env", "Pong", "--env", "Qbert", "--threshold", "1"], "leave it out"),
        (["catch"], "catch alone cannot be compared"),
        (["catch", "catch"], "named twice"),
        (["catch", "cach"], "There is no preset or file 'cach'"),
        (["catch", "pong"], "for different games"),
        (["catch", "pong", "--config", "atari"], "--config would change nothing in a comparison of configurations"),
        (["runs", "catch"], "runs is not the folder of a run"),
        (["runs", "catch", "--env", "Catch"], "--env would change nothing in a comparison of runs"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(arguments, sentence, tmp_path, run_cli):
    if "runs" in arguments:
        (tmp_path / "runs").mkdir()
    assert_one_sentence(run_cli("compare", *arguments, cwd=tmp_path), 2, sentence)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_is_a_file_even_if_its_name_could_be_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kind_of(["catch", "mine:Mine"]) == ALGORITHMS
    Path("mine:Mine").touch()
    assert kind_of(["catch", "mine:Mine"]) == CONFIGURATIONS


def test_what_an_id_means_is_said_once(tmp_path, run_cli):
    """Before anything else, by every command that trains; the mistakes end them there."""
    meaning = "ALE/Pong-v5 is Pong with env.sticky_action_probability=0.25 and env.frame_skip=4.\n"
    same = run_cli("compare", "--vary", "optimizer.rho=0.9,0.9", "--env", "ALE/Pong-v5", cwd=tmp_path)
    assert (same.returncode, same.stdout) == (2, meaning)
    (tmp_path / "checkpoints").mkdir()
    seeds = run_cli("train", "--env", "ALE/Pong-v5", "--seeds", "2", "--run-dir", tmp_path)
    assert (seeds.returncode, seeds.stdout) == (2, meaning)


def test_without_ray_installed_the_extra_is_named(tmp_path, run_cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run_cli("compare", "--vary", "algorithm.gamma=0.9,0.99", "--cluster", "auto", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "a2c: --cluster needs Ray on this machine and on every node: pip install 'a2c[ray]'.\n"


# --- real processes ------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_where_and_growth_alone(tmp_path, tiny, run_cli):
    arguments = ["--eager", "--config", tiny, "--only", "where", "--only", "growth", "--updates", "3", "--out", "out"]
    result = run_cli("compare", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    values = json.loads((tmp_path / "out/results.json").read_text())
    assert values["where"]["exact"]["update"] is None
    assert values["where"]["exact"]["updates"] == 3
    assert [len(distances) for distances in values["growth"].values()] == [3, 3]
    assert not any(group["max_abs"] for update in values["growth"]["exact"] for group in update.values())
    assert values["why"] is values["convergence"] is None
    assert "graph exact and eager gave the same bits in all 3 updates" in result.stdout
    assert not (tmp_path / "out/runs").exists()


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_comparison_resumes_with_what_is_missing(tmp_path, run_cli, number):
    """Eager against graph on Catch; stopped in the second run, when the first was finished."""
    catch = ["--eager", "--only", "convergence", "--seeds", "1", "--steps", "8000", "--jobs", "1", "--out", "out"]
    quick = ["--set", "logging.every_updates=1", "--set", "env.num_envs=4"]
    command = [sys.executable, "-m", "a2c", "compare", *catch, *quick]
    runs = tmp_path / "out/runs"
    stopped = press_ctrl_c(
        command, lambda: steps_done(runs / "graph-fast-s0") > 0, cwd=tmp_path, timeout=120, number=number
    )
    assert stopped.returncode == 128 + number
    assert "Stopped. The same command continues with what is missing." in stopped.stdout
    before = (runs / "graph-fast-s0/metrics.jsonl").read_bytes()
    done = steps_done(runs / "graph-fast-s0")
    assert 0 < done < 8000
    log = tmp_path / "out/logs/graph-fast-s0.log"
    assert step_file(runs / "graph-fast-s0/checkpoints", done).exists(), log.read_text()
    eager = (runs / "eager-s0/metrics.jsonl").stat().st_mtime_ns
    result = run_cli("compare", *catch, *quick, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert (runs / "eager-s0/metrics.jsonl").stat().st_mtime_ns == eager
    assert (runs / "graph-fast-s0/metrics.jsonl").read_bytes().startswith(before)
    text = " ".join(result.stdout.split())
    assert "graph exact: identical to eager bit for bit in its one seed" in text
    assert "a 95 % interval needs 6" in text
    assert len(list(runs.iterdir())) == 3


@pytest.mark.integration
def test_values_and_runs_are_compared_and_a_folder_holds_one_comparison(tmp_path, tiny, run_cli):
    vary = ["compare", "--vary", "optimizer.learning_rate=1e-3,0.1", "--config", tiny, "--seeds", "1"]
    varied = run_cli(*vary, "--out", "a", cwd=tmp_path)
    assert (varied.returncode, varied.stderr) == (0, "")
    summaries = json.loads((tmp_path / "a/results.json").read_text())["convergence"]["summaries"]
    assert [arm["arm"] for arm in summaries] == ["learning_rate=1e-3", "learning_rate=0.1"]
    runs = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "a/runs").iterdir())
    again = run_cli("compare", *runs, "--out", "b", "--threshold", "0.1", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    summaries = json.loads((tmp_path / "b/results.json").read_text())["convergence"]["summaries"]
    assert [summary["arm"] for summary in summaries] == [
        "learning_rate=0.1",
        "learning_rate=0.001",
    ]  # in the order of their names
    taken = run_cli(*vary, "--set", "seed=1", "--set", "algorithm.gamma=0.5", "--out", "a", cwd=tmp_path)
    assert taken.returncode == 2
    assert (
        taken.stderr == "a2c: a holds another comparison: arms.0.1.seed is 0 there and 1 here; choose another --out.\n"
    )
