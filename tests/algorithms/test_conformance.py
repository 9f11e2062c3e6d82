"""What every algorithm must do, whatever it learns by; a new one is in here as soon as it is in the table."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from updates import with_statistics

from a2c import extensions
from a2c.algorithms.algorithm import Algorithm, build_algorithm
from a2c.algorithms.sections import DEFAULT, SECTIONS
from a2c.config import Config, UserError, build_config, load_config
from a2c.config.explain import SOURCES
from a2c.data.collector import RolloutCollector, build_collector
from a2c.envs import make_env_groups
from a2c.evaluation.evaluate import evaluate
from a2c.execution.runtime import parts_of
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train

pytestmark = pytest.mark.usefixtures("exact_numerics")
ALGORITHMS = sorted(SECTIONS)
QUICK = [DEFAULT, "ppo"]  # the others' own tests hold the same by default
SOON = {"learning_starts": 0, "target_update": 5, "gradient_steps": 4, "replay_capacity": 300, "batch_size": 64}
SOON |= {"first_temperature": 0.1, "target_entropy": 0.2}  # with two actions, SAC's defaults act almost at random
SOON |= {"noise_hold": 4, "target_clip_fraction": 0.01}  # so low that the rate falls
EXACT = [name for name in ALGORITHMS if SECTIONS[name].PROMISES.exact]
SAME_IN_BOTH_MODES = [name for name in ALGORITHMS if SECTIONS[name].PROMISES.modes]


def quick(names: list[str], by_default: Sequence[str] = QUICK) -> list[Any]:
    """The names as parameters: what takes long is an integration test."""
    return [name if name in by_default else pytest.param(name, marks=pytest.mark.integration) for name in names]


def config(name: str, mode: str = "graph", updates: int = 5, **sections: Any) -> Config:
    """Bandit through a small network: 8 environments, 16 steps."""
    values = {
        "total_env_steps": updates * 8 * 16 * rollouts_of(name),
        "env": {"id": "Bandit", "num_envs": 8},
        "model": {"name": "mlp", "hidden_sizes": [16], "separate_value": SECTIONS[name].SEPARATE_VALUE},
        "algorithm": {"name": name, "rollout_length": 16, **soon(name)},
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "runtime": {"mode": mode},
        "logging": {"every_updates": 1, "trackers": []},
        **sections,
    }
    return build_config(values, where="test")


def soon(name: str) -> dict[str, float]:
    """Settings with which something is learned in the first update, and all is used in a few."""
    return {key: value for key, value in SOON.items() if key in SECTIONS[name].model_fields}


def rollouts_of(name: str) -> int:
    return SECTIONS[name](rollout_length=16).rollouts_per_update


def begun(settings: Config) -> tuple[Algorithm, RolloutCollector]:
    envs = make_env_groups(settings.env, seed=settings.seed, groups=parts_of(settings))
    algorithm = build_algorithm(settings, envs.observation_space, envs.num_actions)
    return algorithm, build_collector(settings, envs, algorithm.policy)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_reports_what_it_announces_and_counts_its_gradient_steps(name):
    settings = config(name, "eager")
    algorithm, collector = begun(settings)
    update, _ = algorithm.iterate(collector, 0)
    assert update.failed is None
    assert update.gradient_steps >= 1
    assert set(update.metrics) >= {metric.name for metric in settings.algorithm.METRICS}
    assert all(np.isfinite(float(update.metrics[metric.name])) for metric in settings.algorithm.METRICS)
    assert next(iter(algorithm.variables)) == "model"
    assert settings.algorithm.TITLE


@pytest.mark.integration
@pytest.mark.parametrize("name", SAME_IN_BOTH_MODES)
def test_eager_execution_gives_the_bits_of_graphs(name):
    found = []
    for mode in ("eager", "graph"):
        algorithm, collector = begun(config(name, mode))
        updates = [algorithm.iterate(collector, number).update for number in range(3)]
        variables = [v.numpy().tobytes() for group in algorithm.variables.values() for v in group]
        found.append((variables, [{key: float(x) for key, x in update.metrics.items()} for update in updates]))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", quick(ALGORITHMS, ["sac", "trpo"]))
def test_a_network_of_ones_own_may_have_variables_that_are_not_trained(name, tmp_path):
    own = {
        "model": {"name": extensions.register(with_statistics), "separate_value": SECTIONS[name].SEPARATE_VALUE},
        "runtime": {"mode": "eager", "numerics": "fast"},
        "checkpoint": {"keep": 9},
    }
    train(config(name, updates=2, **own), tmp_path / "run")
    assert train(config(name, updates=3, **own), tmp_path / "run", resume=True).counters.gradient_steps > 0
    saved = find_checkpoint(tmp_path / "run").group("model")
    assert {float(saved[key].mean()) for key in saved if "moving_mean" in key} == {0.0, 1.0}


@pytest.mark.parametrize("name", quick(EXACT, ["ppo"]))  # whole runs of a2c have tests of their own
def test_a_resumed_run_has_the_bits_of_one_never_stopped(name, tmp_path):
    """Everything but the schedule's end is the same: a constant rate, 5 updates against 3 and 2."""
    train(config(name), tmp_path / "whole")
    train(config(name, updates=3), tmp_path / "parts")
    train(config(name), tmp_path / "parts", resume=True)
    assert find_checkpoint(tmp_path / "whole").bits == find_checkpoint(tmp_path / "parts").bits


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted({*ALGORITHMS} - {*EXACT}))
def test_what_is_not_exact_says_so_and_resumes_from_where_it_was(name, tmp_path):
    said: list[str] = []
    first = train(config(name, updates=2), tmp_path / "run", warn=said.append)
    assert any("does not promise the same bits" in sentence for sentence in said)
    then = train(config(name, updates=3), tmp_path / "run", resume=True)
    assert (then.counters.updates, 2 * then.counters.gradient_steps) == (3, 3 * first.counters.gradient_steps)


@pytest.mark.integration
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_checkpoint_holds_all_that_was_learned(name, tmp_path):
    """Every variable, and none as it was at the start."""
    settings = config(name)
    train(settings, tmp_path / "run")
    saved = find_checkpoint(tmp_path / "run")
    algorithm, _ = begun(settings)
    for group, variables in algorithm.variables.items():
        arrays = list(saved.group(group).values())
        assert [array.shape for array in arrays] == [tuple(v.shape) for v in variables], group
        moved = [array.tobytes() != v.numpy().tobytes() for array, v in zip(arrays, variables, strict=True)]
        assert any(moved), f"{group} has learned nothing"


@pytest.mark.parametrize("name", quick(ALGORITHMS))
def test_a_reward_without_end_is_never_learned_from(name, monkeypatch):
    """The update says what failed, and no weight or slot takes a number that is not finite."""
    settings = config(name, "eager", env={"id": "Bandit", "num_envs": 8, "reward_clipping": "none"})
    algorithm, collector = begun(settings)
    for group in collector.groups:
        step = group.envs.step

        def sick(actions, step=step):
            outcome = step(actions)
            outcome.rewards[...] = np.inf
            return outcome

        monkeypatch.setattr(group.envs, "step", sick)
    before = [v.numpy() for v in algorithm.variables["model"]]
    update, _ = algorithm.iterate(collector, 0)
    assert update.failed is not None, "the loss is finite though rewards are not: a clip hides them"
    assert update.failed[0] in algorithm.steps
    assert all(np.ndim(metric) == 0 for metric in update.metrics.values())  # callbacks are told of each
    assert all(np.isfinite(v.numpy()).all() for group in algorithm.variables.values() for v in group)
    assert update.gradient_steps == 0
    for variable, array in zip(algorithm.variables["model"], before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), array)


@pytest.mark.parametrize("name", sorted({*ALGORITHMS} - {n for n in ALGORITHMS if SECTIONS[n].PROMISES.workers}))
def test_what_cannot_share_a_batch_says_so_before_it_starts(name):
    with pytest.raises(UserError, match=rf"algorithm\.name={name}.*runtime\.strategy"):
        config(name, runtime={"strategy": "mirrored", "replicas": 2})


@pytest.mark.integration
def test_replicas_make_the_updates_of_one_learner(tmp_path):
    names = [name for name in ALGORITHMS if SECTIONS[name].PROMISES.workers]
    command = [sys.executable, str(Path(__file__).with_name("mirrored.py")), str(tmp_path / "found.json"), *names]
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert DEFAULT in found
    for name, of in found.items():
        assert of["moved"] > 1e-3, name
        assert of["weights"] < 1e-5, name
        assert of["metrics"] < 1e-4, name


@pytest.mark.integration
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_bandit_is_learned(name, run_dir):
    """The arms pay 0.2 and 0.8: chance scores 0.5."""
    prefers_the_other_arm = 1  # the seed of a network with which DQN starts at 0.2
    train(config(name, updates=max(1, 64 // rollouts_of(name)), seed=prefers_the_other_arm), run_dir)
    assert evaluate(run_dir, episodes=1000).mean > 0.65


# without the promise of the same bits a run now and then takes off too late
LEARNING = [
    pytest.param(name, marks=pytest.mark.integration if SECTIONS[name].PROMISES.exact else pytest.mark.slow)
    for name in ALGORITHMS
]


@pytest.mark.parametrize("name", LEARNING)
def test_catch_is_learned_with_its_preset(name, run_dir):
    """In a process of its own, whose threads no earlier test has set: with other last bits it is another run."""
    command = [sys.executable, "-m", "a2c", "train", "--env", "Catch", "--algorithm", name, "--run-dir", run_dir, "-q"]
    subprocess.run(command, check=True)
    # not the last 100 games of training: of those an agent that gets 0.92 on average gets 0.8 now and then
    assert evaluate(run_dir, episodes=200, greedy=True).mean > 0.8


def test_nothing_outside_of_its_room_knows_an_algorithm_by_name():
    """Neither as a text nor as a module: the loop, checkpoints, comparisons and pictures work for all of them."""
    package = Path(__file__).parents[2] / "a2c"
    names = [name for name in ALGORITHMS if name != DEFAULT]  # the package has the name of the default
    for file in package.rglob("*.py"):
        if file.parent.name == "algorithms":
            continue
        text = file.read_text()
        for name in names:
            assert f'"{name}"' not in text, f"{file} names {name}"
            assert f"algorithms.{name}" not in text, f"{file} imports {name}"
        assert "algorithms import " not in text, f"{file} imports modules of algorithms by name"
        assert "algorithms.a2c" not in text, f"{file} imports a2c.algorithms.a2c"


def test_every_algorithm_has_its_presets_a_test_a_layer_a_row_and_its_sources():
    here = Path(__file__).parent
    tables = [(here.parents[1] / file).read_text() for file in ("README.md", "docs/algorithms.md")]
    layers = (here.parents[1] / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    for name in ALGORITHMS:
        assert SECTIONS[name]().name == name  # the Literal in its section
        assert f"algorithms.{name}" in re.split(r'[\s"|]+', layers), f"pyproject.toml has no layer for it: {name}"
        assert load_config(config="atari" if name == DEFAULT else name)[0].algorithm.name == name
        for preset in ("catch", "vector"):
            config = load_config(config=preset if name == DEFAULT else f"{preset}-{name}")[0]
            assert config.algorithm.name == name
        assert (here / f"test_{name}.py").is_file()
        assert all(f"| `{name}` |" in table for table in tables)
        for key, field in SECTIONS[name].model_fields.items():
            marks = set(re.findall(r"\[\w+\]", field.description or ""))
            assert marks <= SOURCES.keys(), f"{key} of {name} has a mark that config/explain.py does not explain"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in SAME_IN_BOTH_MODES if "replay_capacity" in SECTIONS[name].model_fields]
)
def test_what_learns_catch_from_a_replay_has_the_same_bits_in_both_modes(name, tmp_path):
    """A whole run, whose draws depend on all that was learned before."""
    for mode in ("graph", "eager"):
        settings, _ = load_config(env_id="Catch", overrides={"algorithm.name": name, "runtime.mode": mode})
        train(settings, tmp_path / mode)
    assert find_checkpoint(tmp_path / "graph").bits == find_checkpoint(tmp_path / "eager").bits
    assert evaluate(tmp_path / "eager", episodes=200, greedy=True).mean > 0.8
