"""Real clusters: each worker is a process of its own, in a network namespace of its own where that is allowed.

`pytest -m slow -n 0 -s tests/test_workers.py` has more workers and more kills.
"""

import itertools
import json
import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from killing import assert_same_run, last_env_steps, read_lines, timeless
from test_faults import sick_config
from workers import PATIENCE, Workers, read_learned, session, some_hosts, write_settings

from a2c.config import dump_config
from a2c.run.archive import read_archive
from a2c.run.checkpoint import read_checkpoint
from a2c.run.step_files import step_files

pytestmark = pytest.mark.integration

ENV_STEPS = 10_000  # 40 updates; later the rounding of the first has grown, as that of any other does
EVALUATIONS = {"evaluation": {"episodes": 5, "every_env_steps": 3_500}}
ROUNDING = 1e-5  # of weights of up to 1
LOST_SECONDS = 60  # in which a worker notices that another is gone


def catch(num_envs: int, *, env_steps: int, workers: bool = True, **settings: object) -> dict:
    """Catch, 16 steps an update in each of `num_envs` environments of a worker."""
    return {
        "total_env_steps": env_steps,
        "env": {"id": "Catch", "num_envs": num_envs},
        "model": {"name": "small", "conv_layers": [[8, 4, 2], [16, 4, 2]]},
        "algorithm": {"rollout_length": 16, "gae_lambda": 0.95, "normalize_advantages": True},
        "optimizer": {"name": "adam", "learning_rate": 1e-3, "schedule": "linear"},
        "runtime": {"threads": 1, "strategy": "multiworker" if workers else "none", "cluster_wait_minutes": 2},
        "logging": {"every_updates": 3},
        "checkpoint": {"every_updates": 7},
        **settings,
    }


def latest(run_dir: Path) -> Path:
    return step_files(run_dir / "checkpoints")[-1]


def lines_match(a: dict, b: dict) -> bool:
    """Whether two lines of metrics are equal to rounding, times apart."""
    return all(
        (b[key] is None) if value is None else abs(value - b[key]) <= 1e-3 * abs(value) + 1e-4
        for key, value in timeless(a).items()
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The settings of a run of two workers that nothing has happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    settings = write_settings(folder, "whole", catch(8, env_steps=ENV_STEPS, **EVALUATIONS))
    train_together(settings, 2)
    return settings


def train_together(settings: Path, number: int, *flags: str) -> None:
    with some_hosts(number) as hosts, session(hosts, [settings] * number, *flags) as workers:
        workers.finish()


def test_two_workers_learn_the_same_as_one_process_with_all_environments(tmp_path, undisturbed):
    assert_as_one_process(tmp_path, undisturbed, 2, **EVALUATIONS)


@pytest.mark.slow
def test_four_workers_learn_the_same_as_one_process_with_all_environments(tmp_path):
    shared = write_settings(tmp_path, "shared", catch(4, env_steps=ENV_STEPS))
    train_together(shared, 4)
    assert_as_one_process(tmp_path, shared, 4)


def assert_as_one_process(folder: Path, shared: Path, number: int, **settings: object) -> None:
    """All workers have learned the same, and what one process with 16 environments learns, to rounding."""
    each = read_learned(shared, number)
    for other in each[1:]:
        assert [key for key in each[0] if each[0][key].tobytes() != other[key].tobytes()] == []
    joint = write_settings(folder, "joint", catch(16, env_steps=ENV_STEPS, workers=False, **settings))
    train_together(joint, 1)
    one, all_of_them = (read_checkpoint(latest(run_dir)) for run_dir in (folder / "joint", shared.with_suffix("")))
    assert one.path.name == all_of_them.path.name
    apart = 0.0
    for key, array in one.group("model").items():
        np.testing.assert_array_equal(all_of_them.group("model")[key], each[0][f"model/{key}"])
        apart = max(apart, float(np.abs(array - all_of_them.group("model")[key]).max()))
    print(
        f"\n{number} workers, {one.meta['counters']['updates']} updates: weights at most {apart:.1e} from one process"
    )
    assert apart <= ROUNDING
    states = [all_of_them.group(group) for group in ("collector", *(f"collector-{w}" for w in range(1, number)))]
    for key in ("episode_numbers", "episode_returns", "observation_digests"):  # they played the same games
        np.testing.assert_array_equal(np.concatenate([state[key] for state in states]), one.group("collector")[key])
    assert timeless(one.meta["counters"]) == timeless(all_of_them.meta["counters"])
    lines = [read_lines(run_dir / "metrics.jsonl") for run_dir in (folder / "joint", shared.with_suffix(""))]
    assert all(lines_match(a, b) for a, b in zip(*lines, strict=True))


def test_workers_that_are_killed_or_stopped_go_on_to_the_same_bits(tmp_path, undisturbed):
    # SIGTERM first: it leaves a checkpoint of its own, which must be old enough at the end to be gone by then
    kills = [(1, signal.SIGTERM), (0, signal.SIGKILL)]  # the end of worker 1 by SIGKILL is below, and in twenty kills
    assert_ends_as_undisturbed(tmp_path, undisturbed, kills, ENV_STEPS, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "env_steps"), [("a2c", 120_000), ("ppo", 60_000)])
def test_twenty_kills(tmp_path, algorithm, env_steps):
    settings = catch(8, env_steps=env_steps, **EVALUATIONS)
    settings["algorithm"] |= {"name": algorithm}
    whole = write_settings(tmp_path, "whole", settings)
    train_together(whole, 2)
    assert_ends_as_undisturbed(tmp_path, whole, [(k % 2, signal.SIGKILL) for k in range(20)], env_steps, seed=1)


def assert_ends_as_undisturbed(
    folder: Path, whole: Path, kills: list[tuple[int, signal.Signals]], env_steps: int, *, seed: int
) -> None:
    """Train again, while one of the two workers is killed again and again."""
    cut = write_settings(folder, "cut", json.loads(whole.read_text())["config"])
    metrics = folder / "cut" / "metrics.jsonl"
    rng = random.Random(seed)
    with some_hosts(2) as hosts:
        for number, (victim, kind) in enumerate(kills):
            with session(hosts, [cut] * 2, "--auto-resume") as workers:
                wait_for_steps(workers, metrics, (number + rng.random()) / len(kills) * 0.9 * env_steps)
                time.sleep(rng.uniform(0, 0.3))
                os.kill(workers.processes[victim].pid, kind)
                began = time.monotonic()
                codes = workers.wait(LOST_SECONDS)
                print(
                    f"{kind.name} to worker {victim} after {last_env_steps(metrics):,} steps; codes {codes}, "
                    f"all had ended {time.monotonic() - began:.1f} s later"
                )
                if kind == signal.SIGTERM:
                    assert codes == [0, 0]  # of worker.py, which does not say how training ended
                    continue
                assert codes[victim] == -signal.SIGKILL
                assert codes[1 - victim] == 1
                assert f"Worker {1 - victim} has lost the others" in workers.said(1 - victim)
        with session(hosts, [cut] * 2, "--auto-resume") as workers:
            workers.finish()
    assert_same_run(whole.with_suffix(""), folder / "cut")
    learned = [each for file in (whole, cut) for each in read_learned(file, 2)]
    for key, array in learned[0].items():
        assert {each[key].tobytes() for each in learned} == {array.tobytes()}, key


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_a_worker_is_heard_while_the_chief_plays_an_evaluation(tmp_path, kind):
    """Else the chief would play for minutes on, deaf, and the other would wait for it, as deaf."""
    pong = {"id": "Pong", "num_envs": 4}
    long = {"episodes": 1_000, "every_env_steps": 3_000}  # minutes
    settings = write_settings(tmp_path, "run", catch(4, env_steps=1_000_000, env=pong, evaluation=long))
    metrics = tmp_path / "run" / "metrics.jsonl"
    with some_hosts(2) as hosts, session(hosts, [settings] * 2) as workers:
        wait_for_steps(workers, metrics, 2_900)
        steps = -1
        while steps != (steps := last_env_steps(metrics)):  # it has stopped to train
            time.sleep(2)
        os.kill(workers.processes[1].pid, kind)
        codes = workers.wait(LOST_SECONDS)
        assert codes == ([1, -9] if kind == signal.SIGKILL else [0, 0])
    if kind == signal.SIGTERM:
        saved = read_checkpoint(latest(tmp_path / "run")).meta["counters"]
        assert (saved["env_steps"] // 3_000, saved["evaluated"]) == (1, 0)  # at once, and to be made up for


def test_checkpoints_by_the_clock_are_made_by_all_once_each_time(tmp_path):
    config = catch(2, env_steps=10_000_000, checkpoint={"every_updates": 10**9, "every_minutes": 0.03, "keep": 1000})
    settings = write_settings(tmp_path, "run", config)
    with some_hosts(2) as hosts, session(hosts, [settings] * 2) as workers:
        while len(step_files(tmp_path / "run" / "checkpoints")) < 5:
            assert all(process.poll() is None for process in workers.processes)
            time.sleep(0.1)
        workers.processes[0].terminate()
        assert workers.wait() == [0, 0]
    times = [file.stat().st_mtime for file in step_files(tmp_path / "run" / "checkpoints")][1:-1]
    assert all(later - earlier > 1.2 for earlier, later in itertools.pairwise(times))


def test_a_longer_run_goes_on_where_the_others_do_not_see_the_folder(tmp_path):
    """What restarts it may not know that it was made longer; the chief does."""
    first = catch(4, env_steps=3_000)
    settings = [write_settings(tmp_path / str(i), "run", first) for i in range(2)]
    with some_hosts(2) as hosts:
        with session(hosts, settings) as workers:
            workers.finish()
        settings[0] = write_settings(tmp_path / "0", "run", {**first, "total_env_steps": 6_000})
        with session(hosts, settings, "--auto-resume") as workers:
            workers.finish()
    assert last_env_steps(tmp_path / "0" / "run" / "metrics.jsonl") >= 6_000
    assert not (tmp_path / "1" / "run").exists()


def wait_for_steps(workers: Workers, metrics: Path, target: float) -> None:
    deadline = time.monotonic() + PATIENCE
    while not metrics.exists() or last_env_steps(metrics) < target:
        assert all(each.poll() is None for each in workers.processes), (workers.said(0), workers.said(1))
        assert time.monotonic() < deadline, "never got there"
        time.sleep(0.02)


def test_a_worker_that_is_unplugged_is_missed(tmp_path):
    """No system answers for it any more, so that only its silence tells. It ends as well: it has lost the others."""
    settings = write_settings(tmp_path, "run", catch(4, env_steps=10_000_000))
    with some_hosts(2) as hosts, session(hosts, [settings] * 2) as workers:
        wait_for_steps(workers, tmp_path / "run" / "metrics.jsonl", 1)
        if hosts.are_apart:
            hosts.unplug(1)
        else:
            os.kill(workers.processes[1].pid, signal.SIGSTOP)
        began = time.monotonic()
        workers.processes[0].wait(LOST_SECONDS)
        print(f"\nmissed after {time.monotonic() - began:.1f} s")
        assert workers.processes[0].returncode == 1
        assert "Worker 0 has lost the others of its 2 workers" in workers.said(0)
        if hosts.are_apart:
            assert workers.wait(LOST_SECONDS) == [1, 1]


@pytest.mark.parametrize(
    ("changes", "flags", "sentence"),
    [
        ({"env": {"id": "Chain", "num_envs": 4}}, [], "Worker 1 has env.id=Chain, and the chief, worker 0, has Catch"),
        ({}, ["--other-version"], "Worker 1 has ale-py=0.0.1, and the chief, worker 0, has "),
    ],
)
def test_a_worker_that_does_something_else_is_refused(tmp_path, changes, flags, sentence):
    config = catch(4, env_steps=10_000)
    ours, theirs = write_settings(tmp_path, "ours", config), write_settings(tmp_path, "theirs", {**config, **changes})
    with some_hosts(2) as hosts, session(hosts, [ours, theirs], flags_of_last=flags) as workers:
        assert workers.wait() == [2, 2]
        for index in range(2):
            assert sentence in workers.said(index)
    assert not (tmp_path / "ours").exists()
    assert not (tmp_path / "theirs").exists()


def test_an_update_that_is_not_finite_on_one_worker_is_left_out_by_all(tmp_path):
    """Found as one process with all environments finds it; what all of them learned from is kept."""
    values = dump_config(sick_config("reward", env={"num_envs": 4}))
    joint = write_settings(tmp_path, "joint", values)
    values["env"]["num_envs"] = 2
    values["runtime"]["strategy"] = "multiworker"
    settings = write_settings(tmp_path, "shared", values)
    with some_hosts(2) as hosts:
        with session(hosts, [joint], "--sick") as alone:
            assert alone.wait() == [2]
            sentence = re.search(r"Update \d+ is not finite, first in batch.rewards", alone.said(0))
        with session(hosts, [settings] * 2, "--sick") as workers:
            assert workers.wait() == [2, 2]
            for index in range(2):
                assert sentence[0] in workers.said(index)
    (one,), (shared,) = ((tmp_path / name / "incidents").glob("step-*") for name in ("joint", "shared"))
    assert one.name == shared.name
    assert json.loads((shared / "report.json").read_text())["nonfinite_stage"] == "batch.rewards"
    a, b = read_archive(one / "update.npz"), read_archive(shared / "update.npz")
    for name in ("observations", "actions", "rewards", "discounts", "ends", "bootstrap_observations"):
        np.testing.assert_array_equal(a[f"batch/{name}"], b[f"batch/{name}"])
