"""The classic wrapper stack and the native environment play the same games: no tolerance, in pixels or rewards.

Both grey with ALE's palette and resize with OpenCV's INTER_AREA in whole numbers, so not one pixel may differ.
"""

from __future__ import annotations

import numpy as np
import pytest

from a2c.config import EnvConfig
from a2c.envs import make_vec_env

SETTINGS = {
    "paddle, fire, no-ops, sticky": ("Breakout", 230, {"sticky_action_probability": 0.25}),
    "pixel for pixel through game over": ("Breakout", 200, {"noop_max": 7}),
    "a seed at every episode": ("Breakout", 200, {"reseed_after": 0}),
    "a seed after some episodes": ("Breakout", 400, {"reseed_after": 200, "sticky_action_probability": 0.25}),
    "no fire in the game": ("Freeway", 60, {"sticky_action_probability": 0.25}),
    "no fire wanted": ("Pong", 60, {"fire_reset": False}),
    "no fire after a lost life": ("Breakout", 200, {"fire_on_life_loss": False, "full_action_space": True}),
    "no no-ops": ("MsPacman", 60, {"noop_max": 0}),
    "all actions": ("Seaquest", 60, {"full_action_space": True, "sticky_action_probability": 0.25}),
    "frame limit inside a step": ("Pong", 60, {"max_frames_per_episode": 82}),
    "frame limit at the end of a step": ("Pong", 60, {"max_frames_per_episode": 84}),
    "other sizes": ("SpaceInvaders", 60, {"screen_size": 100, "frame_stack": 2, "frame_skip": 3}),
    "every frame": ("Pong", 60, {"frame_skip": 1, "frame_stack": 1}),
}


# what others hold too
MORE = {
    "paddle, fire, no-ops, sticky",
    "pixel for pixel through game over",
    "a seed at every episode",
    "no fire wanted",
    "no fire after a lost life",
    "no no-ops",
    "frame limit at the end of a step",
}
CASES = [
    pytest.param(*values, id=name, marks=[pytest.mark.integration] if name in MORE else [])
    for name, values in SETTINGS.items()
]


@pytest.mark.parametrize(("game", "steps", "settings"), CASES)
def test_wrappers_equal_native(game: str, steps: int, settings: dict) -> None:
    native, wrappers = (
        make_vec_env(EnvConfig(id=game, num_envs=2, backend=backend, **settings), seed=11)
        for backend in ("native", "wrappers")
    )
    assert native.num_actions == wrappers.num_actions
    assert native.observation_space == wrappers.observation_space
    assert (native.frames_per_step, native.name) == (wrappers.frames_per_step, wrappers.name)
    np.testing.assert_array_equal(native.reset(), wrappers.reset())
    ends = 0
    for actions in np.random.default_rng(0).integers(native.num_actions, size=(steps, 2)):
        left, right = native.step(actions), wrappers.step(actions)
        ends += len(left.episodes)
        assert left.episodes == right.episodes
        for x, y in zip(left[:-1], right[:-1], strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
    assert ends > 0 or steps == 60
    for key, array in native.state().items():
        np.testing.assert_array_equal(array, wrappers.state()[key])


def test_a_state_of_one_backend_is_a_state_of_the_other() -> None:
    config = EnvConfig(id="Breakout", num_envs=2, sticky_action_probability=0.25)
    native = make_vec_env(config, seed=5)
    observations = native.reset()
    for actions in np.random.default_rng(0).integers(4, size=(60, 2)):
        observations = native.step(actions).observations
    wrappers = make_vec_env(config.model_copy(update={"backend": "wrappers"}), seed=5)
    restored, lost = wrappers.restore(native.state())
    assert lost == 0
    np.testing.assert_array_equal(restored, observations)


def test_game_over_in_the_last_allowed_frame_is_game_over() -> None:
    config = EnvConfig(id="Breakout", num_envs=1, frame_skip=1, noop_max=0)
    actions = np.random.default_rng(0).integers(4, size=(2_000, 1)).repeat(4, axis=0)

    def first_end(config: EnvConfig) -> tuple[int, bool, bool]:
        envs = make_vec_env(config, seed=0)
        envs.reset()
        step = next(step for step in map(envs.step, actions) if step.episodes)
        return step.episodes[0].frames, bool(step.terminated[0]), bool(step.truncated[0])

    frames, terminated, _ = first_end(config)
    assert terminated
    for backend in ("native", "wrappers"):
        for limit, expected in ((frames, (frames, True, False)), (frames - 1, (frames - 1, False, True))):
            changed = {"backend": backend, "max_frames_per_episode": limit}
            assert first_end(config.model_copy(update=changed)) == expected
