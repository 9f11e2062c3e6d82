"""A3C: one actor is A2C, several lose nothing; what goes wrong in one thread ends, or stops, all of them."""

import json
import os
import signal
import threading

import gymnasium as gym
import numpy as np
import pytest
from conftest import MODES, VECTORS, A, make_rollout, read_lines, run_config, small_config
from gymnasium.spaces import Box

from a2c.algorithms.a3c import A3C, ActorStep
from a2c.algorithms.algorithm import Algorithm, Update, build_algorithm
from a2c.algorithms.sections import A3CSection
from a2c.analysis.compare import compare_modes
from a2c.analysis.request import Request
from a2c.config import Config, CrashError, UserError, load_config
from a2c.data.collector import RolloutCollector, build_collector
from a2c.envs import make_env_groups
from a2c.envs.toy import Bandit
from a2c.evaluation.evaluate import evaluate
from a2c.execution.runtime import parts_of
from a2c.run.archive import read_archive
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train

pytestmark = pytest.mark.usefixtures("exact_numerics")

MLP = {"name": "mlp", "hidden_sizes": [8]}


def config_of(algorithm: dict, **sections: object) -> Config:
    """Bandit in 4 environments, 5 steps a rollout."""
    values = {
        "env": {"id": "Bandit", "num_envs": 4},
        "model": {"name": "mlp", "hidden_sizes": [8]},
        "logging": {"every_updates": 1, "trackers": []},
        "checkpoint": {"every_updates": 2},
        **sections,
    }
    return small_config(**values, algorithm={"rollout_length": 5, **algorithm})


def a3c(actors: int, rollouts: int, **sections: object) -> Config:
    return config_of({"name": "a3c", "actors": actors, "rollouts": rollouts}, **sections)


def after(config: Config, rounds: int) -> tuple[Algorithm, RolloutCollector, list[Update], list]:
    """What is there after some rounds of the loop."""
    with make_env_groups(config.env, seed=config.seed, groups=parts_of(config)) as envs:
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        collector = build_collector(config, envs, algorithm.policy)
        algorithm.trace()
        rounds_ = [algorithm.iterate(collector, number) for number in range(rounds)]
    return algorithm, collector, [each.update for each in rounds_], [e for each in rounds_ for e in each.episodes]


def learned(algorithm: Algorithm) -> list[np.ndarray]:
    return [variable.numpy() for variables in algorithm.variables.values() for variable in variables]


@pytest.mark.parametrize(
    ("mode", "sections"),
    [
        ("graph", {"env": {"id": "Catch", "num_envs": 4, "screen_size": 24}, "model": {"name": "small"}}),
        ("eager", {"env": {"id": "Chain", "num_envs": 4}, "optimizer": {"name": "adam", "schedule": "linear"}}),
    ],
)
def test_one_actor_with_one_rollout_a_round_is_a2c_bit_for_bit(mode, sections):
    """Chain's episodes are truncated after 32 steps: their values are asked for too."""
    sections = {"total_env_steps": 800, "runtime": {"mode": mode}, **sections}
    ours, collector, updates, episodes = after(a3c(1, 1, **sections), 8)
    theirs, other, expected, ended = after(config_of({}, **sections), 8)
    for mine, its in zip(learned(ours), learned(theirs), strict=True):
        assert mine.tobytes() == its.tobytes()
    assert {k: x.tobytes() for k, x in collector.state().items()} == {k: x.tobytes() for k, x in other.state().items()}
    assert [{**u.metrics, "staleness": 0.0} for u in expected] == [u.metrics for u in updates]
    assert episodes == ended


def test_the_gradients_of_an_actor_are_those_of_its_copy_applied_to_the_shared_weights():
    """Between its copy and its step another actor makes one: SGD would go from the new weights along the old slope."""
    config = a3c(2, 1, env={"id": "Chain", "num_envs": 4}, optimizer={"max_grad_norm": 1e6})
    algorithm, *_ = after(config, 2)
    assert isinstance(algorithm, A3C)
    first, second = algorithm.learners
    states = Box(0, 1, (6,), np.float32)
    batches = [actor.trajectory(make_rollout(s, states, 2, 5, 2)) for s, actor in enumerate(algorithm.actors)]
    first.synchronize()
    second.synchronize()
    expected = [gradient.numpy() for gradient in first.gradients(type(batches[0])(*batches[0]))[0]]
    assert float(second(batches[1])["staleness"]) == 0
    before = [v.numpy() for v in first.apply_to]
    squares = [v.numpy() for v in first.optimizer.variables[2:]]
    assert float(first(batches[0])["staleness"]) == 1
    for old, new, gradient, square in zip(before, first.apply_to, expected, squares, strict=True):
        mean = 0.99 * square.astype(np.float64) + 0.01 * gradient.astype(np.float64) ** 2
        np.testing.assert_allclose(new.numpy(), old - 7e-4 * gradient / np.sqrt(mean + 1e-5), rtol=2e-6, atol=2e-7)


def test_several_actors_make_all_steps_and_each_counts_the_steps_of_others(run_dir):
    """Every pull of Bandit's arms is a game, so that none can be lost unseen."""
    config = a3c(4, 3, total_env_steps=5 * 4 * 3 * 4)
    summary = train(config, run_dir)
    counters = summary.counters
    assert (counters.updates, counters.env_steps, counters.episodes) == (4, 240, 240)
    assert counters.gradient_steps == 4 * 4 * 3
    arrays = find_checkpoint(run_dir).arrays
    assert int(arrays["collector/draws"]) == 4 * 3 * 5
    rows = read_lines(run_dir / "metrics.jsonl")
    for row in rows:
        assert 0 <= row["staleness"] <= 3 * 3  # a round's steps of the others
    assert any(row["staleness"] > 0 for row in rows)


def test_all_actors_learn_from_their_own_environments_at_a_time(monkeypatch):
    """Nobody comes out of the first rollout before all are in it: with turns, or one thread, this would not end."""
    meeting = threading.Barrier(4, timeout=20)
    collect, columns = RolloutCollector.collect_group, []

    def collect_group(self, index, explore):
        if len(columns) < 4:
            columns.append(index)
            meeting.wait()
        return collect(self, index, explore)

    monkeypatch.setattr(RolloutCollector, "collect_group", collect_group)
    _, _, (update,), episodes = after(a3c(4, 2), 1)
    assert sorted(columns) == [0, 1, 2, 3]
    assert update.gradient_steps == 8
    games = sorted((episode.env_index, episode.number) for _, episode in episodes)
    assert games == [(index, number) for index in range(4) for number in range(10)]
    rows = [row for row, _ in episodes]
    assert rows == sorted(rows)
    assert set(rows) == set(range(10))


def test_an_actor_draws_what_its_group_would_in_a_joint_rollout_and_others_draw_otherwise():
    """Bandit's observation is always the same: with equal draws both would pull the same arms."""
    config = a3c(2, 1)
    with (
        make_env_groups(config.env, seed=0, groups=2) as envs,
        make_env_groups(config.env, seed=0, groups=2) as same,
    ):
        policy = build_algorithm(config, envs.observation_space, envs.num_actions).policy
        apart, together = build_collector(config, envs, policy), build_collector(config, same, policy)
        for _ in range(2):
            shares = [share for share, _ in apart.each_group(lambda g: apart.collect_group(g, policy.explore))]
            joint, _ = together.collect()
            assert np.array_equal(np.concatenate([share.actions for share in shares], axis=1), joint.actions)
            assert np.array_equal(np.concatenate([share.rewards for share in shares], axis=1), joint.rewards)
            assert not np.array_equal(shares[0].actions, shares[1].actions)
        assert apart.draws == together.draws == 10


def test_the_learning_rate_falls_over_the_steps_of_all_actors():
    """Half of it is left after two of four rounds."""
    linear = {"schedule": "linear", "learning_rate": 1e-2}
    algorithm, *_ = after(a3c(2, 3, total_env_steps=4 * 60, optimizer=linear), 2)
    assert isinstance(algorithm, A3C)
    assert float(algorithm.learners[0].optimizer.learning_rate) == pytest.approx(0.5e-2)


def test_a_joint_rollout_is_no_batch_of_its_actors():
    algorithm = build_algorithm(run_config(MLP, {}, "eager", num_envs=4, name="a3c", actors=2), VECTORS, A)
    with pytest.raises(NotImplementedError, match="has an `iterate` of its own"):
        algorithm.update(make_rollout(3, b=4, t=5), 0)


# --- what goes wrong -------------------------------------------------------------------------------------------------


class Sick(Bandit):
    """The environments of the second actor fall ill at their 7th game, which is in its second rollout."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.games = how, 0

    def reset(self, **options):
        self.games += 1
        return super().reset(**options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.games == 7 and threading.current_thread().name == "a2c-group-1":
            if self.how == "crash":
                raise ZeroDivisionError("the moon is full")
            reward = np.inf
        return observation, float(reward), *rest


def sick(how: str, **sections: object) -> Config:
    """2 actors of 2 environments; the second falls ill in the second of four rollouts of the first round."""
    if f"SickArms-{how}-v0" not in gym.registry:
        gym.register(f"SickArms-{how}-v0", lambda: Sick(how))
    return a3c(2, 4, env={"id": f"SickArms-{how}-v0", "num_envs": 4}, total_env_steps=160, **sections)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_finite_in_one_actor_is_not_applied_and_is_kept(run_dir, mode):
    with pytest.raises(UserError, match=r"Update 1 is not finite, first in batch.rewards, and was not applied"):
        train(sick("reward", runtime={"mode": mode}), run_dir)
    (incident,) = (run_dir / "incidents").iterdir()
    arrays = read_archive(incident / "update.npz")
    assert arrays["batch/rewards"].shape == (5, 2)
    assert not np.isfinite(arrays["batch/rewards"]).all()
    assert all(np.isfinite(array).all() for name, array in arrays.items() if name.startswith(("model", "optimizer")))
    report = json.loads((incident / "report.json").read_text())
    # the first actor made its 4 steps, the second one
    assert (report["counters"]["gradient_steps"], report["counters"]["env_steps"]) == (5, 80)


def test_a_run_that_skips_it_has_all_its_steps(run_dir):
    counters = train(sick("reward", optimizer={"on_nan": "skip"}), run_dir).counters
    assert (counters.updates, counters.skipped_updates, counters.env_steps, counters.episodes) == (2, 1, 160, 160)
    assert counters.gradient_steps == 5 + 8


def test_the_stage_is_found_with_the_weights_that_the_actor_had(monkeypatch):
    """Its weights are NaN, the shared ones are finite: copied once more, the gradients would be finite again."""
    config = a3c(2, 3)
    copy = ActorStep.synchronize

    def synchronize(self):
        copy(self)
        if threading.current_thread().name == "a2c-group-1" and not copied:
            copied.append(self)
            self.variables[0].assign(self.variables[0] * np.nan)

    copied: list[ActorStep] = []
    monkeypatch.setattr(ActorStep, "synchronize", synchronize)
    algorithm, _, (update,), _ = after(config, 1)
    assert update.failed is not None
    assert update.failed[0] == "actor 1"
    assert update.gradient_steps == 3
    assert np.isnan(copied[0].variables[0].numpy()).all()
    assert all(np.isfinite(array).all() for array in learned(algorithm))


def test_an_exception_in_a_thread_of_an_actor_ends_the_run(run_dir):
    with pytest.raises(CrashError, match="The run stopped after update 0 with ZeroDivisionError: the moon is full"):
        train(sick("crash"), run_dir)
    assert find_checkpoint(run_dir).env_steps == 0


def test_ctrl_c_in_the_middle_of_a_round_stops_after_it(run_dir, monkeypatch):
    collect, calls = RolloutCollector.collect_group, []

    def collect_group(self, index, explore):
        calls.append(index)
        if len(calls) == 10:  # in the second round of 8 rollouts
            os.kill(os.getpid(), signal.SIGINT)
        return collect(self, index, explore)

    monkeypatch.setattr(RolloutCollector, "collect_group", collect_group)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        summary = train(a3c(2, 4, total_env_steps=8_000), run_dir)
    finally:
        signal.signal(signal.SIGINT, before)
    assert summary.signal == signal.SIGINT
    assert len(calls) == 16
    assert find_checkpoint(run_dir).env_steps == summary.counters.env_steps == 160


# --- what it says ----------------------------------------------------------------------------------------------------


def test_a_stopped_run_is_resumed_and_says_that_its_bits_are_others(run_dir):
    train(a3c(2, 2, total_env_steps=40), run_dir)
    half = find_checkpoint(run_dir)
    said: list[str] = []
    counters = train(a3c(2, 2, total_env_steps=80), run_dir, resume=True, warn=said.append).counters
    assert (counters.updates, counters.env_steps, counters.episodes) == (2, 80, 80)
    assert counters.gradient_steps == 2 * 4
    saved = find_checkpoint(run_dir)
    assert int(saved.arrays["collector/draws"]) == 2 * int(half.arrays["collector/draws"]) == 20
    steps = next(name for name in half.arrays if name.startswith("optimizer/"))  # what the optimizer counts
    assert (saved.arrays[steps], half.arrays[steps]) == (8, 4)
    assert any(
        saved.arrays[name].tobytes() != half.arrays[name].tobytes() for name in half.arrays if name.startswith("model/")
    )
    (promise,) = [sentence for sentence in said if "promise" in sentence]
    assert promise == (
        "algorithm.name=a3c does not promise the same bits: two runs of one seed differ, and so do a resumed run and "
        "one that was never stopped."
    )


def test_comparing_its_executions_bit_by_bit_is_not_possible(tmp_path):
    request = Request(envs=("Bandit",), assignments=("algorithm.name=a3c",), folder=tmp_path / "out")
    with pytest.raises(UserError, match="a3c does not promise the same bits in eager and graph execution"):
        compare_modes(request)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("cores", "num_envs", "actors", "expected"), [(2, 16, 0, 2), (6, 16, 0, 4), (64, 12, 0, 12), (2, 16, 8, 8)]
)
def test_there_is_an_actor_for_each_core_unless_said_otherwise(cores, num_envs, actors, expected):
    assert A3CSection(actors=actors).groups(num_envs, cores) == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"actors": 3}, "env.num_envs=4 cannot be shared evenly by algorithm.actors=3; give a multiple of it"),
        ({"rollout_length": 1, "normalize_advantages": True}, "needs a batch of at least 2 steps"),
        (
            {"rollouts": 1000},
            "is less than one rollout of 20000 steps (algorithm.rollout_length=5 x env.num_envs=4 x 1000 rollouts)",
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(changes, sentence):
    with pytest.raises(UserError) as error:
        config_of({"name": "a3c", "rollouts": 1, **changes})
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_an_actor_of_several_environments_has_advantages_to_normalise():
    config_of({"name": "a3c", "rollouts": 1, "actors": 1, "rollout_length": 1, "normalize_advantages": True})


@pytest.mark.integration
def test_the_bandit_is_learned(run_dir):
    """The arms pay 0.2 and 0.8; chance scores 0.5."""
    config, _ = load_config(
        env_id="Bandit",
        config="catch-a3c",
        assignments=["model.name=mlp", "algorithm.actors=2", "logging.trackers=[]"],
        overrides={"total_env_steps": 15_000},
    )
    train(config, run_dir)
    assert evaluate(run_dir, episodes=1000).mean > 0.65  # 100 games could score 0.1 less by chance
