"""The Atari games: their names, action counts and reference scores. Reads only two small tables."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# ale_py:ALE/Pong-v5, ALE/Pong-v5, PongNoFrameskip-v4, ...: only the game counts, the rest is in EnvConfig.
_ID = re.compile(r"(?:ale_py:)?(?:ALE/)?([a-z0-9_ ]+?)(?:(?:NoFrameskip|Deterministic)?-v[045])?", re.IGNORECASE)


class Game(NamedTuple):
    """One Atari game."""

    name: str  # SpaceInvaders
    rom: str  # space_invaders
    num_actions: int  # of the minimal action set
    random: float | None  # mean score of a random player, if published
    human: float | None  # mean score of a human player, if published


def games() -> list[Game]:
    """All single-player games of ale-py, sorted by name."""
    return list(_games().values())


def game_names() -> list[str]:
    """The names of all games, sorted: for shell completion."""
    return [game.name for game in games()]


def atari_game(env_id: str) -> Game | None:
    """The game of an id, or None if there is none.

    `Pong`, `pong`, `ALE/Pong-v5`, `Pong-v4` and `PongNoFrameskip-v4` are one game; so are `SpaceInvaders` and
    `space_invaders`.
    """
    match = _ID.fullmatch(env_id)
    return _games().get(_key(match[1])) if match else None


def human_normalized(game: Game, score: float) -> float | None:
    """Scale a score so that random play is 0 and the human 1; None if no reference is published."""
    if game.random is None or game.human is None:
        return None
    return (score - game.random) / (game.human - game.random)


def published_a2c(game: Game) -> dict[str, float]:
    """Published scores of other A2C agents: the columns of atari_scores.csv that have the game."""
    rows = [row for row in _rows("atari_scores.csv") if row["rom"] == game.rom]
    return {name: float(score) for row in rows for name, score in row.items() if "a2c" in name and score}


@cache
def _games() -> dict[str, Game]:
    scores = {row["rom"]: (float(row["random"]), float(row["human"])) for row in _rows("atari_scores.csv")}
    found = (
        Game(row["game"], row["rom"], int(row["num_actions"]), *scores.get(row["rom"], (None, None)))
        for row in _rows("atari_games.csv")
    )
    return {_key(game.name): game for game in found}


def _rows(table: str) -> list[dict[str, str]]:
    lines = files("a2c.envs").joinpath(table).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _key(name: str) -> str:
    return re.sub(r"[_ ]", "", name).lower()
