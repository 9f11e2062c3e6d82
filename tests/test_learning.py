"""The whole trainer learns: a sign error, a shifted index or a lost advantage would show here."""

import pytest

from a2c.config import load_config
from a2c.evaluation.evaluate import evaluate
from a2c.run.training import train


@pytest.mark.parametrize(
    "mode",
    [pytest.param("graph", marks=pytest.mark.integration), pytest.param("eager", marks=pytest.mark.slow)],
)
def test_catch_is_learned_in_seconds(run_dir, mode):
    """Random play scores -0.8; the ball falls for 11 steps before anything is paid."""
    config, _ = load_config(config="catch", overrides={"total_env_steps": 55_000, "runtime.mode": mode})
    train(config, run_dir)
    assert evaluate(run_dir, episodes=200).mean > 0.8


@pytest.mark.integration
def test_the_bandit_is_learned_with_the_classic_recipe(run_dir):
    """The arms pay 0.2 and 0.8; chance scores 0.5."""
    config, _ = load_config(env_id="Bandit", overrides={"total_env_steps": 40_000})
    train(config, run_dir)
    assert evaluate(run_dir, episodes=1000).mean > 0.65


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_cartpole_is_learned_with_the_preset_of_vectors(run_dir, algorithm, seed):
    """100 k steps; no game scores more than 500."""
    config, source = load_config(env_id="CartPole-v1", overrides={"algorithm.name": algorithm, "seed": seed})
    counters = train(config, run_dir).counters
    print(f"\nCartPole-v1, {source}, seed {seed}: {counters.return_mean:.1f} after {counters.env_steps:,} steps")
    assert counters.env_steps <= 100_100
    assert counters.return_mean >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_cartpole_is_learned_by_dqn_within_60_000_steps(run_dir, seed):
    """Greedily played: in training a random action in a hundred ends some games early."""
    config, source = load_config(env_id="CartPole-v1", overrides={"algorithm.name": "dqn", "seed": seed})
    counters = train(config, run_dir).counters
    mean = evaluate(run_dir, episodes=20, greedy=True).mean
    print(f"\nCartPole-v1, {source}, seed {seed}: {counters.return_mean:.1f}, greedily {mean:.1f}")
    assert counters.env_steps <= 60_100
    assert mean >= 475


def test_the_chain_is_learned_past_its_small_reward(run_dir):
    """Left pays 0.1 at once, 3.2 a game; the way right pays 27, but nothing for five steps."""
    config, _ = load_config(
        env_id="Chain",
        overrides={"total_env_steps": 40_000},
        assignments=["optimizer.name=adam", "optimizer.learning_rate=3e-3", "algorithm.entropy_coef=0.1"],
    )
    assert train(config, run_dir).counters.return_mean > 20
