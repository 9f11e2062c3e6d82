"""Part four of comparisons, on real runs and on run folders whose answer is known."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import packed
from in_process import InProcess

from a2c.analysis import convergence
from a2c.analysis.arms import Arm, ArmRun, arms_of, is_finished, plan_runs, steps_done, train_planned, training_job
from a2c.config import UserError, build_config, dump_config
from a2c.run.archive import write_archive
from a2c.run.checkpoint import FORMAT
from a2c.run.counters import Counters
from a2c.run.lock import FolderLock, LockedError
from a2c.run.training import train
from a2c.run.view import View

BANDIT = {
    "env": {"id": "Bandit", "num_envs": 4},
    "algorithm": {"rollout_length": 8},
    "logging": {"every_updates": 1, "trackers": []},
    "evaluation": {"episodes": 0},
    "runtime": {"threads": 0},
    "total_env_steps": 320,
}


def bandit(**sections):
    return build_config({**BANDIT, **sections}, where="test")


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory):
    """Bandit: two seeds, eager, graph, and graph with another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    ways = {
        "eager": {"runtime": {"mode": "eager"}},
        "graph": {"runtime": {"mode": "graph"}},
        "quick": {"runtime": {"mode": "graph"}, "optimizer": {"learning_rate": 0.1}},
    }
    for name, sections in ways.items():
        for seed in (0, 1):
            train(bandit(seed=seed, **sections), folder / f"{name}-s{seed}")
    return folder


def made_run(
    folder: Path, returns, *, every: int = 100, speed: float = 100.0, weights: float = 0.0, per_update: int | None = 1
) -> Path:
    """A run folder as training leaves it, with a learning curve that is known."""
    (folder / "checkpoints").mkdir(parents=True)
    lines = [
        {
            "env_steps": every * i,
            "updates": 10 * i,
            "episodes": 60 * i,
            "episode_return_mean": value,
            "seconds": every * i / speed,
            "steps_per_second": speed,
            **({} if per_update is None else {"gradient_steps": 10 * i * per_update}),  # older runs did not count them
        }
        for i, value in enumerate(returns, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    meta = {"format": FORMAT, "config": dump_config(bandit()), "counters": Counters().state()}
    arrays = {"meta": packed(meta), "model/w": np.array([weights])}
    write_archive(folder / f"checkpoints/step-{every * len(returns):012d}.npz", arrays)
    return folder


def made_runs(tmp_path: Path, curves: dict[str, list[list[float]]], **more) -> list[ArmRun]:
    return [
        ArmRun(arm, "Catch", seed, made_run(tmp_path / f"{arm}-{seed}", returns, **more))
        for arm, seeds in curves.items()
        for seed, returns in enumerate(seeds)
    ]


def test_the_threshold_is_reached_at_the_first_line_with_a_full_window(tmp_path):
    runs = made_runs(tmp_path, {"a": [[9.0, 1.0, 5.0, 6.0, 2.0]], "b": [[0.0, 0.0, 0.0, 0.0, 5.0]]})
    first, second = convergence.converge(runs, {"Catch": 5.0}).runs
    assert (first.env_steps_to_threshold, first.seconds_to_threshold) == (300, 3.0)  # not 100: only 60 games had ended
    assert (first.gradient_steps_to_threshold, second.gradient_steps_to_threshold) == (30, 50)
    assert (second.env_steps_to_threshold, second.final_return, second.steps_per_second) == (500, 5.0, 100.0)


def test_who_writes_more_lines_does_not_seem_to_learn_sooner(tmp_path):
    """Both reach 5 after 410 to 420 steps; one has a line every 10 steps, the other every 100."""
    often = made_run(tmp_path / "a", [0.0] * 41 + [5.0] * 19, every=10)
    seldom = made_run(tmp_path / "b", [0.0] * 4 + [5.0] * 2, every=100)
    runs = [ArmRun("a", "Catch", 0, often), ArmRun("b", "Catch", 0, seldom)]
    first, second = convergence.converge(runs, {"Catch": 5.0}).runs
    assert (first.env_steps_to_threshold, second.env_steps_to_threshold) == (500, 500)
    assert len(first.env_steps) == 60  # the curve has every line


def test_older_runs_made_one_gradient_step_an_update(tmp_path):
    older = made_run(tmp_path / "a", [0.0, 5.0], per_update=None)
    runs = [
        ArmRun("a", "Catch", 0, older),
        ArmRun("b", "Catch", 0, made_run(tmp_path / "b", [0.0, 5.0], per_update=16)),
    ]
    (contrast,) = convergence.converge(runs, {"Catch": 5.0}).contrasts
    assert contrast.env_steps_to_threshold.estimate == 1
    assert contrast.gradient_steps_to_threshold.estimate == pytest.approx(16)
    assert convergence.are_identical(older, made_run(tmp_path / "c", [0.0, 5.0]))


def test_who_gets_there_without_a_gradient_step_has_no_ratio_of_them(tmp_path):
    runs = made_runs(tmp_path, {"a": [[0.0, 5.0]], "b": [[0.0, 5.0]]}, per_update=0)
    (contrast,) = convergence.converge(runs, {"Catch": 5.0}).contrasts
    assert (contrast.env_steps_to_threshold.estimate, contrast.gradient_steps_to_threshold) == (1, None)


def test_arms_whose_algorithm_does_not_promise_the_same_bits_are_named(tmp_path):
    arms = [Arm(name, bandit(algorithm={"name": name}, total_env_steps=1000)) for name in ("a2c", "a3c")]
    runs = [plan.run for plan in plan_runs(arms, range(2), tmp_path)]
    for run in runs:
        made_run(run.folder, [0.0, 1.0])
    assert convergence.converge(runs, {"Bandit": None}).inexact == ("a3c",)


def test_a_run_that_never_gets_there_is_censored_and_counts(tmp_path):
    slow, quick = [0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]
    never = [0.0] * 4
    runs = made_runs(tmp_path, {"a": [quick] * 7, "b": [slow, slow, slow, slow, slow, never, never]})
    found = convergence.converge(runs, {"Catch": 1.0})
    summary = found.summaries[1]
    assert (summary.runs, summary.reached, summary.env_steps_to_threshold) == (7, 5, 400)
    (contrast,) = found.contrasts
    steps = contrast.env_steps_to_threshold
    assert (steps.pairs, steps.censored_first, steps.censored_second) == (7, 0, 2)
    assert steps.estimate == pytest.approx(2.0)
    assert steps.high == math.inf
    assert steps.shown
    assert contrast.gradient_steps_to_threshold == steps  # of one gradient step an update, both


def test_half_a_censored_time_is_no_time(tmp_path):
    found = convergence.converge(
        made_runs(tmp_path, {"a": [[0.0, 1.0], [0.0, 0.0]], "b": [[0.0, 1.0]] * 2}), {"Catch": 1.0}
    )
    assert [s.env_steps_to_threshold for s in found.summaries] == [math.inf, 200]


def test_only_the_budget_that_all_runs_have_is_compared(tmp_path):
    runs = made_runs(tmp_path, {"a": [[0.0, 0.0, 0.0, 8.0]], "b": [[0.0, 2.0]]})
    found = convergence.converge(runs, {"Catch": 5.0}, cut=True)
    assert found.budget == 200
    assert [run.final_return for run in found.runs] == [0.0, 2.0]
    assert found.runs[0].env_steps_to_threshold == math.inf
    assert found.runs[0].env_steps == (100, 200)


def test_a_run_without_a_line_in_the_budget_is_named(tmp_path):
    long = ArmRun("a", "Catch", 0, made_run(tmp_path / "a", [0.0, 8.0], every=1_000))
    short = ArmRun("b", "Catch", 0, made_run(tmp_path / "b", [0.0, 2.0]))
    with pytest.raises(UserError, match=r"/a has no return in the steps that all runs have"):
        convergence.converge([long, short], {"Catch": 5.0}, cut=True)


def test_pairs_are_runs_of_one_seed(tmp_path):
    runs = made_runs(tmp_path, {"a": [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], "b": [[2.0, 2.0], [4.0, 4.0]]})
    (contrast,) = convergence.converge(runs, {"Catch": None}).contrasts
    assert contrast.seeds == (0, 1)
    assert contrast.final_return.estimate == 1.5
    assert contrast.env_steps_to_threshold is contrast.gradient_steps_to_threshold is None
    others = [ArmRun("b", "Catch", run.seed + 7, run.folder) for run in runs if run.arm == "b"]
    with pytest.raises(UserError, match="'a' and 'b' have no seed in common"):
        convergence.converge([*runs[:3], *others], {"Catch": None})


@pytest.mark.integration
def test_eager_and_graph_are_identical_and_another_rate_is_not(real_runs):
    runs = [
        ArmRun(arm, "Bandit", seed, real_runs / f"{arm}-s{seed}")
        for arm in ("eager", "graph", "quick")
        for seed in (0, 1)
    ]
    same, other = convergence.converge(runs, {"Bandit": None}).contrasts
    assert (same.arm, same.identical, same.final_return.estimate) == ("graph", 2, 0)
    assert (other.arm, other.identical) == ("quick", 0)


@pytest.mark.parametrize("what", ["weights", "metrics"])
def test_one_bit_makes_runs_different(tmp_path, what):
    changed = {"weights": 1e-30} if what == "weights" else {}
    first = made_run(tmp_path / "a", [0.5, 0.25])
    second = made_run(tmp_path / "b", [0.5, 0.25 if what == "weights" else np.nextafter(0.25, 1)], **changed)
    assert not convergence.are_identical(first, second)


def test_equal_runs_of_another_speed_are_identical(tmp_path):
    assert convergence.are_identical(made_run(tmp_path / "a", [0.5]), made_run(tmp_path / "b", [0.5], speed=7.0))


@pytest.fixture
def begun(tmp_path) -> Path:
    """The configurations of runs: two seeds of two learning rates."""
    for name, sections in (("plain", {}), ("quick", {"optimizer": {"learning_rate": 0.1}})):
        for seed in (0, 1):
            (tmp_path / f"{name}-s{seed}").mkdir()
            values = dump_config(bandit(seed=seed, **sections))
            (tmp_path / f"{name}-s{seed}/config.yaml").write_text(yaml.safe_dump(values))
    return tmp_path


def test_runs_are_sorted_into_arms_by_what_differs(begun):
    folders = [begun / name for name in ("plain-s0", "plain-s1", "quick-s1", "quick-s0")]
    runs = arms_of(folders)
    assert [(run.arm, run.env, run.seed) for run in runs] == [
        ("learning_rate=0.0007", "Bandit", 0),
        ("learning_rate=0.0007", "Bandit", 1),
        ("learning_rate=0.1", "Bandit", 1),
        ("learning_rate=0.1", "Bandit", 0),
    ]


def test_a_warm_start_makes_an_arm_of_its_own(begun):
    for seed in (0, 1):
        file = begun / f"quick-s{seed}" / "config.yaml"
        values = yaml.safe_load((begun / f"plain-s{seed}" / "config.yaml").read_text())
        file.write_text(yaml.safe_dump({**values, "provenance": {"init_from": "runs/old, 4 steps"}}))
    ways = ["init_from=none", "init_from=runs/old, 4 steps"]
    assert [run.arm for run in arms_of([begun / name for name in ("plain-s0", "quick-s0", "quick-s1")])] == [
        ways[0],
        ways[1],
        ways[1],
    ]
    assert [run.arm for run in arms_of([begun / name for name in ("quick-s0", "plain-s0")])] == ways[::-1]


def test_runs_of_several_algorithms_are_named_after_them_and_after_what_differs_in_one(tmp_path):
    adam = {"name": "adam", "learning_rate": 1e-3}
    ways = {
        "a": {"algorithm": {"name": "a2c"}},
        "b": {"algorithm": {"name": "ppo"}, "optimizer": adam},
        "c": {"algorithm": {"name": "a3c"}},
        "d": {"algorithm": {"name": "ppo"}, "optimizer": {**adam, "learning_rate": 2e-3}},
        "e": {"env": {"threads": 3}, "runtime": {"threads": 3}},
        "f": {
            **{"algorithm": {"name": "a2c"}, "checkpoint": {"every_updates": 3}, "evaluation": {"episodes": 3}},
            **{"logging": {"every_updates": 1, "histograms": True}, "runtime": {"cluster_wait_minutes": 3}},
        },
    }
    for name, sections in ways.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(
            yaml.safe_dump(dump_config(bandit(total_env_steps=1000, **sections)))
        )
    runs = arms_of([tmp_path / name for name in "abc"])
    assert [(run.arm, run.exact) for run in runs] == [
        ("algorithm=a2c", True),
        ("algorithm=ppo", True),
        ("algorithm=a3c", False),
    ]
    labels = {run.arm for run in arms_of([tmp_path / name for name in "bda"])}
    assert labels == {
        "algorithm=ppo, learning_rate=0.001",
        "algorithm=ppo, learning_rate=0.002",
        "algorithm=a2c, learning_rate=0.0007",
    }
    label = arms_of([tmp_path / name for name in "ea"])[0].arm
    assert label.startswith("num_envs=16, env.threads=3, rollout_length=8")
    assert label.endswith("runtime.threads=3")
    with pytest.raises(UserError, match="trained in the same way"):  # what is saved and evaluated teaches nothing
        arms_of([tmp_path / name for name in "af"])
    with pytest.raises(UserError, match="learn alike and have the same seed"):
        arms_of([tmp_path / name for name in "afd"])


def test_runs_that_cannot_be_compared_are_refused(begun, tmp_path):
    with pytest.raises(UserError, match="trained in the same way"):
        arms_of([begun / "plain-s0", begun / "plain-s1"])
    with pytest.raises(UserError, match="is not the folder of a run"):
        arms_of([begun / "plain-s0", tmp_path])
    with pytest.raises(UserError, match="learn alike and have the same seed"):
        arms_of([begun / name for name in ("plain-s0", "quick-s0", "plain-s0")])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match=r"No game has ended in .*, which has no whole line of metrics"):
        convergence.converge([ArmRun("a", "Catch", 0, empty)], {"Catch": None})
    line = {"env_steps": 4, "updates": 1, "seconds": 1.0, "episodes": 0, "episode_return_mean": None}
    (empty / "metrics.jsonl").write_text(f"{json.dumps(line)}\nnothing\n")
    told: list[str] = []
    with pytest.raises(UserError, match=r"No game has ended in .*; train it longer"):
        convergence.converge([ArmRun("a", "Catch", 0, empty)], {"Catch": None}, warn=told.append)
    assert told == [f"{empty / 'metrics.jsonl'}: damaged lines are left out, 1 in all, the first is line 2."]


def test_a_run_is_finished_with_its_last_line_and_the_checkpoint_that_belongs_to_it(tmp_path):
    folder = made_run(tmp_path / "a", [0.1, 0.2, 0.3])
    assert steps_done(folder) == 300
    assert is_finished(folder, bandit(total_env_steps=290))
    assert not is_finished(folder, bandit(total_env_steps=301))
    (folder / "checkpoints/step-000000000300.npz").unlink()
    assert not is_finished(folder, bandit(total_env_steps=300))
    (folder / "metrics.jsonl").write_text('{"env_steps": 100}\n{"env_st')
    assert steps_done(folder) == steps_done(tmp_path / "none") == 0


@pytest.mark.parametrize("first", [0, 1])
def test_the_plan_goes_seed_by_seed_and_begins_with_another_arm_each_time(first, tmp_path):
    """The very first run is of the first arm, with which `converge` compares the others."""
    arms = [Arm(f"x={x}", bandit(algorithm={"rollout_length": x})) for x in (1, 2)]
    planned = plan_runs(arms, range(first, first + 3), tmp_path)
    names = [plan.run.folder.name for plan in planned]
    a, b, c = range(first, first + 3)
    assert names == [f"x-1-s{a}", f"x-2-s{a}", f"x-2-s{b}", f"x-1-s{b}", f"x-1-s{c}", f"x-2-s{c}"]
    assert all(plan.file.name == f"{plan.run.folder.name[:-3]}.yaml" for plan in planned)
    assert {plan.run.arm: plan.config for plan in planned} == {arm.label: arm.config for arm in arms}


def test_a_long_last_line_is_read_whole(tmp_path):
    run = made_run(tmp_path / "run", [0.0, 2.0])
    file = run / "metrics.jsonl"
    last = json.loads(file.read_text().splitlines()[-1])
    file.write_text(json.dumps({**last, **{f"mean_of_action_{i}": 0.123456789 for i in range(200)}}) + "\n")
    assert steps_done(run) == 200


@pytest.mark.parametrize(
    ("labels", "games"),
    [
        (("1e-3", "1e+3"), ("Bandit", "Bandit")),
        (("x", "x"), ("Pong", "ALE/Pong-v5")),
        (("x" * 300 + "1", "x" * 300 + "2"), ("Bandit", "Bandit")),
    ],
)
def test_arms_of_like_names_have_folders_of_their_own(labels, games, tmp_path):
    arms = [
        Arm(label, bandit(env={"id": game}, algorithm={"rollout_length": number}))
        for number, (label, game) in enumerate(zip(labels, games, strict=True), 1)
    ]
    planned = plan_runs(arms, [0], tmp_path)
    assert len({plan.run.folder for plan in planned}) == len({plan.file for plan in planned}) == 2
    assert max(len(plan.file.name) for plan in planned) < 110
    again = plan_runs(arms[::-1], [0], tmp_path)
    assert {plan.run.folder for plan in again} == {plan.run.folder for plan in planned}


def test_a_run_that_is_to_be_evaluated_is_finished_with_its_last_evaluation(tmp_path):
    folder, config = made_run(tmp_path / "a", [0.1, 0.2]), bandit(total_env_steps=200, evaluation={"episodes": 5})
    assert not is_finished(folder, config)
    (folder / "evaluations.jsonl").write_text('{"env_steps": 100}\n')
    assert not is_finished(folder, config)
    long = json.dumps({"env_steps": 200, "returns": [0.5] * 20_000})
    (folder / "evaluations.jsonl").write_text(f'{{"env_steps": 100}}\n{long}\n')
    assert is_finished(folder, config)


def test_the_job_trains_the_arm(tmp_path):
    """The real command, in this process; its run is done then."""
    arm = Arm("x", bandit(total_env_steps=64))
    planned = plan_runs([arm], [3], tmp_path)
    with View().part("training", 64) as part:
        train_planned(planned, tmp_path, jobs=1, place=InProcess(), part=part)
    stored = yaml.safe_load((planned[0].run.folder / "config.yaml").read_text())
    stored.pop("provenance")
    stored.pop("schema")
    assert stored == dump_config(bandit(total_env_steps=64, seed=3))
    assert training_job(planned[0], tmp_path).is_done()


def test_what_another_process_trains_keeps_its_settings(tmp_path):
    planned = plan_runs([Arm("x", bandit(total_env_steps=64))], [3], tmp_path)
    planned[0].file.parent.mkdir()
    planned[0].file.write_text("those of the other process")
    with FolderLock(tmp_path) as lock, View().part("training", 64) as part:
        lock.take()
        with pytest.raises(LockedError, match="works in"):
            train_planned(planned, tmp_path, jobs=1, place=InProcess(), part=part)
    assert planned[0].file.read_text() == "those of the other process"


def test_whole_runs_are_compared_where_rollouts_end_a_little_apart(tmp_path):
    """Of the same 1,000 steps: 1,040 with rollouts of 80 steps, 1,024 with rollouts of 256."""
    a, b = made_run(tmp_path / "a", [0.0, 1.0], every=520), made_run(tmp_path / "b", [0.0, 2.0], every=512)
    found = convergence.converge([ArmRun("a", "Catch", 0, a), ArmRun("b", "Catch", 0, b)], {"Catch": None})
    assert [run.final_return for run in found.runs] == [1.0, 2.0]


def test_damaged_runs_are_read_as_far_as_they_go_or_told(tmp_path):
    first, second = made_run(tmp_path / "a", [0.0, 1.0]), made_run(tmp_path / "b", [0.0, 1.0])
    last = json.loads((first / "metrics.jsonl").read_text().splitlines()[-1])
    for text in (
        "{}\n",
        "[1]\n",
        json.dumps({**last, "env_steps": 0}) + "\n",
        '{"env_steps": 250}\n',
        '{"env_steps": 30',
    ):
        with (first / "metrics.jsonl").open("a") as file:
            file.write(text)
    runs = [ArmRun("a", "Catch", 0, first), ArmRun("b", "Catch", 0, second)]
    assert convergence.converge(runs, {"Catch": None}).contrasts[0].identical == 1
    (second / "checkpoints/step-000000000200.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="damaged or not a checkpoint"):
        convergence.converge(runs, {"Catch": None})
    (second / "checkpoints/step-000000000200.npz").unlink()
    with pytest.raises(UserError, match="holds no checkpoint"):
        convergence.converge(runs, {"Catch": None})


def test_ways_of_training_need_the_same_games(tmp_path):
    catch, bandit_run = made_run(tmp_path / "a", [0.0, 1.0]), made_run(tmp_path / "b", [0.0, 1.0])
    for label, named in (("a", "'a'"), ("a" * 300, r"'a+\.\.\.a+'")):
        with pytest.raises(UserError, match=f"^{named} has no run of Bandit"):
            convergence.converge(
                [ArmRun(label, "Catch", 0, catch), ArmRun("b", "Bandit", 0, bandit_run)],
                {"Catch": None, "Bandit": None},
            )


def test_several_games_are_aggregated_by_human_normalised_score(tmp_path):
    pong, breakout = (-20.7, 14.6), (1.7, 30.5)  # random and human

    def score(reference, normalized):
        return reference[0] + normalized * (reference[1] - reference[0])

    runs = []
    for arm, level in (("a", 0.2), ("b", 0.8)):
        for env, reference in (("Pong", pong), ("Breakout", breakout)):
            for seed in range(4):
                value = score(reference, level + 0.01 * seed)
                folder = made_run(tmp_path / f"{arm}-{env}-{seed}", [value, value])
                runs.append(ArmRun(arm, env, seed, folder))
    found = convergence.converge(runs, {"Pong": None, "Breakout": None})
    first, second = found.aggregates
    assert first.interquartile_mean == pytest.approx(0.215, abs=1e-3)
    assert second.interquartile_mean == pytest.approx(0.815, abs=1e-3)
    assert first.interval[0] < first.interquartile_mean < first.interval[1]
    assert (first.improvement, second.improvement) == (None, 1.0)
    assert len(found.contrasts) == 2
    catch = [ArmRun(run.arm, "Catch", run.seed, run.folder) for run in runs if run.env == "Pong"]
    assert convergence.converge([*runs, *catch], {"Pong": None, "Breakout": None, "Catch": None}).aggregates == ()


@pytest.mark.parametrize(
    ("env", "threshold"),
    [
        ("Catch", 0.0),
        ("Pong", pytest.approx(-3.05, abs=0.1)),
        ("CartPole-v1", 475.0),
        ("module:CartPole-v1", 475.0),
        ("Bandit", None),
    ],
)
def test_default_thresholds(env, threshold):
    assert convergence.default_threshold(env) == threshold
