"""The start of a game as a small GIF."""

from __future__ import annotations

import io

import numpy as np
import pytest
from conftest import small_config
from PIL import Image, ImageSequence

from a2c.data.rollout import Episode
from a2c.envs import make_filmed_env
from a2c.evaluation.evaluate import PlayedGame
from a2c.show.game import replay
from a2c.show.thumbnail import thumbnail


def pong(length: int) -> tuple[object, PlayedGame]:
    """A game with random actions that the frame limit ends."""
    config = small_config(env={"max_frames_per_episode": 4 * length}).env
    actions = np.random.default_rng(0).integers(6, size=length, dtype=np.int32)
    env = make_filmed_env(config)
    env.reset(np.ones(1, np.bool_), np.array([5]))
    score = sum(env.step(actions[t : t + 1]).rewards[0] for t in range(length))
    return config, PlayedGame(Episode(0, 0, 5, float(score), length, 4 * length), actions)


@pytest.mark.parametrize(("length", "frames"), [(40, 40), pytest.param(500, 450, marks=pytest.mark.integration)])
def test_it_shows_every_fourth_frame_of_at_most_30_seconds(length, frames):
    config, game = pong(length)
    seen = []
    gif = thumbnail(config, game, on_frame=lambda: seen.append(1))
    assert (gif.width, gif.height) == (160, 210)
    assert len(gif.encoded) < 600_000
    wanted = [picture for step in replay(make_filmed_env(config), game) for picture in step.pictures][: 4 * frames : 4]
    with Image.open(io.BytesIO(gif.encoded)) as image:
        shown = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
        total = sum(frame.info["duration"] for frame in ImageSequence.Iterator(image))
    assert total == pytest.approx(frames * 1000 / 15, rel=0.06)
    # Pillow shows two equal pictures once, and longer
    different = [a for a, b in zip(wanted, [None, *wanted], strict=False) if b is None or (a != b).any()]
    np.testing.assert_array_equal(shown, different)
    assert len(seen) >= 4 * frames - 3


def test_what_cannot_be_shown_is_left_out():
    config, game = pong(20)
    other = PlayedGame(game.episode._replace(episode_return=99.0), game.actions)
    assert thumbnail(config, other) is None
    assert thumbnail(small_config(env={"id": "Chain"}).env, game) is None


def test_it_can_be_stopped():
    config, game = pong(20)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        thumbnail(config, game, on_frame=stop)
