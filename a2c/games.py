"""The names of environments; the Atari games, their action counts and reference scores. Reads two small tables."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

TOYS = {"Catch": "a2c/Catch-v0", "Bandit": "a2c/Bandit-v0", "Chain": "a2c/Chain-v0"}  # by their ids in Gymnasium

# Pong, ALE/Pong-v5, ale_py:ALE/Pong-v5, Pong-v4, PongNoFrameskip-v4, PongDeterministic-v0, ...
_ID = re.compile(
    r"(?P<module>ale_py:)?(?P<ale>ALE/)?(?P<game>[A-Za-z0-9_ ]+?)"
    r"(?:(?P<frames>NoFrameskip|Deterministic)?-v(?P<v>[045]))?"
)


class Game(NamedTuple):
    """One Atari game."""

    name: str  # SpaceInvaders
    rom: str  # space_invaders
    num_actions: int  # of the minimal action set
    legacy_ids: bool  # whether Gymnasium has it as -v0 and -v4 too
    random: float | None  # mean score of a random player, if published
    human: float | None  # mean score of a human player, if published


class GymnasiumId(NamedTuple):
    """What an Atari id means in Gymnasium, where it differs from a game's short name.

    As ale_py.registration has it; `Deterministic` as Gym had it up to 0.26.
    """

    sticky_action_probability: float
    frame_skip: int | None  # None: the id fixes none, and the agent's own skip counts
    frames: str  # an action's, in words

    def settings(self) -> dict[str, Any]:
        """The keys of `EnvConfig` that the id decides."""
        values = {"sticky_action_probability": self.sticky_action_probability, "frame_skip": self.frame_skip}
        return {key: value for key, value in values.items() if value is not None}


def games() -> list[Game]:
    """All single-player games of ale-py, sorted by name."""
    return list(_games().values())


def game_names() -> list[str]:
    """The names of all games, sorted: for shell completion."""
    return [game.name for game in games()]


def atari_game(env_id: str) -> Game | None:
    """The game of an id, or None if there is none.

    `Pong`, `pong`, `ALE/Pong-v5`, `Pong-v4` and `PongNoFrameskip-v4` are one game; so are `SpaceInvaders` and
    `space_invaders`. An id with more than a name must be one of Gymnasium's, or a `Deterministic` one of Gym's.
    """
    match = _ID.fullmatch(env_id)
    game = _games().get(_key(match["game"])) if match else None
    return game if match and game and (_is_short(match) or _is_registered(match, game)) else None


def canonical_id(env_id: str) -> str:
    """The one name under which an environment is stored: the short one of a game or toy, else the id itself."""
    toys = {registered: name for name, registered in TOYS.items()}
    game = atari_game(env_id)
    return game.name if game else toys.get(env_id, env_id)


def gymnasium_id(env_id: str) -> GymnasiumId | None:
    """What an Atari id of Gymnasium means; None for a short name such as `Pong`, and for what is no game."""
    match, game = _ID.fullmatch(env_id), atari_game(env_id)
    if match is None or game is None or _is_short(match):
        return None
    if match["ale"]:
        return GymnasiumId(0.25, 4, "4")
    sticky = 0.25 if match["v"] == "0" else 0.0
    if match["frames"] == "Deterministic":
        skip = 3 if game.rom == "space_invaders" else 4  # 4 hides its shots, which flicker
        return GymnasiumId(sticky, skip, f"{skip}")
    return GymnasiumId(sticky, None, "1" if match["frames"] else "2 to 4, drawn at random")


def is_ram_id(env_id: str) -> bool:
    """Whether an id is of an Atari game whose observation is the memory of the console, such as `Pong-ram-v4`."""
    return "-ram" in env_id and atari_game(env_id.replace("-ram", "", 1)) is not None


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
        Game(
            row["game"],
            row["rom"],
            int(row["num_actions"]),
            row["legacy_ids"] == "1",
            *scores.get(row["rom"], (None, None)),
        )
        for row in _rows("atari_games.csv")
    )
    return {_key(game.name): game for game in found}


def _rows(table: str) -> list[dict[str, str]]:
    lines = files("a2c").joinpath(table).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _is_short(match: re.Match[str]) -> bool:
    """Whether an id is only a name."""
    return not (match["module"] or match["ale"] or match["v"])


def _is_registered(match: re.Match[str], game: Game) -> bool:
    """Whether ale_py registers an id (without a version: the newest), or Gym did up to 0.26."""
    if match["game"] != game.name:
        return False
    if match["ale"]:
        return match["frames"] is None and match["v"] in ("5", None)
    return game.legacy_ids and match["v"] in ("0", "4", None)


def _key(name: str) -> str:
    return re.sub(r"[_ ]", "", name).lower()
