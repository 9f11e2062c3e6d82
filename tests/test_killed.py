"""A run that is killed with SIGKILL again and again, at random moments, ends with the bits of one never stopped.

`pytest -m slow -n 0 -s tests/test_killed.py` prints a line for each kill.
"""

import pytest
from killing import assert_killed_is_as_undisturbed

from a2c.algorithms.sections import DEFAULT, SECTIONS, ReplaySection
from a2c.run.checkpoint import read_checkpoint
from a2c.run.step_files import step_files

# 4 environments x 16 steps; linear, so that a lost count of updates shows in the rate; odd numbers, so that lines and
# checkpoints fall beside each other
ATARI = """
    env.num_envs=4 env.screen_size=42 env.sticky_action_probability=0.25 env.reseed_after=300
    model.name=small model.pixels=standardized model.conv_layers=[[8,4,4],[16,4,2]]
    algorithm.rollout_length=16 algorithm.gae_lambda=0.95
    optimizer.name=adam optimizer.schedule=linear
    logging.every_updates=1 checkpoint.every_updates=7
"""


def settings(text: str) -> list[str]:
    return [argument for setting in text.split() for argument in ("--set", setting)]


CATCH = """
    optimizer.learning_rate=1e-4 optimizer.schedule=linear logging.every_updates=1 checkpoint.every_updates=3
    evaluation.every_env_steps=1000 evaluation.episodes=10
"""


@pytest.mark.integration
@pytest.mark.parametrize(("kills", "env_steps"), [(1, 8_000), (4, 24_000)])
def test_a_killed_run_ends_with_the_bits_of_one_never_stopped(tmp_path, kills, env_steps):
    """The first kill comes while a checkpoint is written; with several, others in start-up and training."""
    arguments = ["--env", "Catch", *settings(CATCH)]
    assert_killed_is_as_undisturbed(tmp_path, "Catch", arguments, env_steps=env_steps, kills=kills, seed=0)


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for name in SECTIONS if name != DEFAULT and SECTIONS[name].PROMISES.exact])
def test_a_killed_run_of_each_algorithm_ends_with_the_bits_of_one_never_stopped(tmp_path, name):
    arguments, steps = ["--env", "Catch", "--algorithm", name, *settings(CATCH)], 20_000
    if issubclass(SECTIONS[name], ReplaySection):  # rollouts of 4 steps: else most of the time is spent saving
        arguments, steps = [*arguments, *settings("checkpoint.every_updates=40")], 8_000
    assert_killed_is_as_undisturbed(tmp_path, f"Catch, {name}", arguments, env_steps=steps, kills=3, seed=0)


@pytest.mark.slow
def test_a_killed_replay_ends_with_the_bits_of_one_never_stopped(tmp_path):
    """Ten kills; the ring of 2,000 transitions is half full, full, and wrapped round three times."""
    own = """
        algorithm.name=dqn algorithm.replay_capacity=2000 algorithm.learning_starts=500 algorithm.prioritised=true
        algorithm.n_step=3 algorithm.double=true algorithm.duelling=true algorithm.target_update=50
        logging.every_updates=1 checkpoint.every_updates=9
    """
    arguments = ["--env", "Catch", *settings(own)]
    assert_killed_is_as_undisturbed(tmp_path, "Catch, a replay", arguments, env_steps=8_000, kills=10, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "own", "env_steps", "kills", "seed"),
    [
        ("Pong", "", 32_000, 40, 1),
        ("Pong", "algorithm.name=ppo", 32_000, 40, 5),
        ("Breakout", "", 32_000, 40, 2),
        ("Breakout", "algorithm.name=ppo", 32_000, 40, 6),
        ("Breakout", "env.backend=wrappers", 8_000, 5, 3),
        ("Breakout", "env.num_envs=16 runtime.threads=2", 128_000, 20, 4),  # in two parts
    ],
)
def test_killed_atari_ends_with_the_bits_of_one_never_stopped(tmp_path, game, own, env_steps, kills, seed):
    """Sticky actions; games end, lives are lost, and every series of games is seeded again a few times."""
    arguments = ["--env", game, "--config", "atari", *settings(f"{ATARI} {own}")]
    title = f"{game}, sticky actions {own}".strip()
    assert_killed_is_as_undisturbed(tmp_path, title, arguments, env_steps=env_steps, kills=kills, seed=seed)
    saved = read_checkpoint(step_files(tmp_path / "killed" / "checkpoints")[-1])
    assert saved.meta["counters"]["episodes"] >= 8
    assert (saved.arrays["collector/series_numbers"] > 0).all()
