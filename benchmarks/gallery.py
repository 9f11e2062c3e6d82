"""Draw docs/gallery.png: a moment of a game of each agent in the repository, with its score.

    python benchmarks/gallery.py                               # of each runs/GAME-reference

The evaluation is played again; the moment is at AT of its game with the median score.
"""

from __future__ import annotations

import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from a2c.envs import make_filmed_env
from a2c.evaluation.evaluate import DEFAULT_EPISODES, evaluation_envs, play
from a2c.execution.runtime import parts_of, setup
from a2c.games import atari_game
from a2c.run.checkpoint import restored_policy
from a2c.run.lookup import find_checkpoint
from a2c.show.game import choose, replay
from a2c.show.picture import ATARI_ASPECT
from a2c.show.style import render

HERE = Path(__file__).resolve().parents[1]
AT = 0.6  # of the steps of a game: far enough for the score to show
COLUMNS = 5


class Moment(NamedTuple):
    """A picture of a game, and what is told of it."""

    title: str
    told: str
    picture: np.ndarray  # [H, W, 3] uint8


def moment(run: Path) -> Moment:
    """A moment of the agent's median game."""
    saved = find_checkpoint(run)
    config = saved.config
    setup(config.runtime, parts=parts_of(config), warn=print)
    episodes = config.evaluation.episodes or DEFAULT_EPISODES
    with evaluation_envs(config, episodes, config.seed) as envs, closing(make_filmed_env(config.env)) as env:
        policy = restored_policy(saved, config, envs.observation_space, envs.num_actions)
        played = play(policy, envs, episodes, greedy=config.evaluation.greedy, seed=config.seed)
        game = choose(played, "median")
        step = next(islice(replay(env, game), int(AT * len(game.actions)), None))
    mean = np.mean([each.episode.episode_return for each in played])
    known = atari_game(config.env.id)
    told = f"{step.score:,.0f} so far; mean of {episodes} games {mean:,.0f}"
    picture = np.max(step.pictures[-2:], axis=0)  # Asteroids draws its objects on every other frame
    return Moment(known.name if known else config.env.id, told, picture)


def draw(moments: list[Moment]) -> bytes:
    """All moments as one PNG."""
    columns = min(COLUMNS, len(moments))
    rows = -(-len(moments) // columns)
    figure = Figure(figsize=(2.4 * columns, 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes in panels:
        axes.axis("off")
    for axes, each in zip(figure.axes, moments, strict=False):
        axes.imshow(each.picture, aspect=1 / ATARI_ASPECT, interpolation="nearest")
        axes.set_title(f"{each.title}\n{each.told}", fontsize=8)
    return render(figure, "png")


def main() -> None:
    """Draw the agents that are there."""
    runs = sorted((HERE / "runs").glob("*-reference"))
    if not runs:
        sys.exit("There are no agents; `python benchmarks/results.py agents` keeps them.")
    (HERE / "docs/gallery.png").write_bytes(draw([moment(run) for run in runs]))


if __name__ == "__main__":
    main()
