"""`watch`: play some games, choose one, and show it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from a2c.algorithms.policy import Policy
from a2c.config import Config, UserError, env_slug
from a2c.envs import clips_rewards, make_filmed_env
from a2c.envs.gymnasium import ScalarEnvs
from a2c.evaluation.evaluate import PlayedGame, check_scores, evaluation_envs, play, way
from a2c.execution.runtime import parts_of, setup
from a2c.games import atari_game
from a2c.run.checkpoint import Saved, restored_policy
from a2c.run.files import made_folder, write_result
from a2c.run.lookup import run_folder, trusted_checkpoint
from a2c.run.view import Part, View
from a2c.show.game import Choice, Saliency, Step, Thoughts, choose, chosen_of, replay, think
from a2c.show.picture import ATARI_ASPECT, Caption, Painter, dyed, lines
from a2c.show.saliency import is_image
from a2c.show.terminal import Screen
from a2c.show.video import encoding

EPISODES = 5
SUFFIXES = (".mp4", ".gif")


class WatchRequest(NamedTuple):
    """What to watch."""

    path: Path  # a checkpoint file, or a run folder for its latest undamaged checkpoint
    env_id: str | None = None  # the environment it must be of; must be named if that is module:Id
    choice: Choice = "median"
    episodes: int = EPISODES  # games to choose from
    greedy: bool | None = None  # None: the run's own
    seed: int | None = None  # of games and draws; None: the run's own
    saliency: Saliency | None = None


@dataclass(frozen=True)
class Watched:
    """The game that was shown, and the files that were made."""

    env: str
    checkpoint: str
    env_steps: int  # of training
    policy: str  # how it chose, see `way`
    seed: int  # of games and draws
    choice: str
    scores: tuple[float, ...]  # of all games to choose from
    score: float
    game_seed: int
    length: int  # agent steps
    frames: int  # of the emulator, as shown
    frames_per_second: float
    saliency: str | None
    files: tuple[str, ...]

    @property
    def which(self) -> str:
        """The game that was chosen, in words."""
        return chosen_of(self.choice, len(self.scores))

    def write(self, path: Path) -> None:
        """Write it as JSON, atomically.

        Raises:
            UserError: if the file cannot be written.
        """
        write_result(path, json.dumps(asdict(self), indent=2) + "\n")


class Chosen(NamedTuple):
    """The game to show, and all that is needed to replay it."""

    request: WatchRequest
    saved: Saved
    policy: Policy
    env: ScalarEnvs
    greedy: bool
    seed: int
    played: list[PlayedGame]
    game: PlayedGame
    view: View


def make_video(
    request: WatchRequest,
    out: Path | None = None,
    *,
    view: View | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Watched:
    """Make an MP4 and a GIF of a game.

    Args:
        request: which game.
        out: one .mp4 or .gif file, or a folder for both. Default: `videos` in the run's folder.
        view: shows the progress; nothing by default.
        warn: called with a sentence for each damaged checkpoint that is skipped, and if TensorFlow already has another
            number of threads.

    Raises:
        UserError: if there is no such checkpoint, it does not fit, the environment has no pictures, or a file cannot
            be written; then nothing is written.
    """
    saved = trusted_checkpoint(request.path, request.env_id, warn)
    files = video_files(out, request, saved)
    below = run_folder(saved.path) if out is None else None
    with (  # the encoder starts before any game, so that a file that cannot be written is reported at once
        closing(make_filmed_env(saved.config.env)) as env,
        made_folder(files[0].parent, below=below),
        encoding(files, env.frames_per_second, below=below) as write,
    ):
        chosen = _choose(request, saved, env, view or View(), warn)
        painter = Painter(_caption(chosen), _think(chosen))
        frames = 0
        with _part(chosen, "drawing it") as part:
            for t, step in enumerate(_counted(chosen, part)):
                painter.step(t, step)
                for picture in step.pictures:
                    write(painter.frame(t, picture))
                frames += len(step.pictures)
    return _watched(chosen, frames, files)


def play_in_terminal(
    request: WatchRequest,
    screen: Screen,
    *,
    view: View | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Watched:
    """Play a game on a terminal at its real speed; arguments and errors as for `make_video`."""
    saved = trusted_checkpoint(request.path, request.env_id, warn)
    with closing(make_filmed_env(saved.config.env)) as env:
        chosen = _choose(request, saved, env, view or View(), warn)
        caption, thoughts = _caption(chosen), _think(chosen)
        frames = 0
        with screen:
            for t, step in enumerate(replay(env, chosen.game)):
                text = lines(caption, thoughts, t, step)
                for picture in step.pictures:
                    shown = dyed(picture, caption, thoughts, t)
                    screen.frame(shown, text, seconds=1 / env.frames_per_second, pixel_aspect=caption.pixel_aspect)
                frames += len(step.pictures)
    return _watched(chosen, frames, [])


def video_files(out: Path | None, request: WatchRequest, saved: Saved) -> list[Path]:
    """The files that `make_video` writes.

    Raises:
        UserError: if `out` is neither a folder nor named like a video.
    """
    if out is not None and not out.is_dir() and out.suffix:
        if out.suffix not in SUFFIXES:
            raise UserError(f"--out {out} must end in {' or '.join(SUFFIXES)}, or be a folder.")
        return [out]
    policy = {None: "", True: "-greedy", False: "-sampled"}[request.greedy]
    name = (
        f"{env_slug(saved.config.env.id)}-{saved.env_steps}-steps-{request.choice}-of-{request.episodes}"
        f"-seed-{_seed(request, saved)}{policy}{'-saliency-' + request.saliency if request.saliency else ''}"
    )
    return [(out or run_folder(saved.path) / "videos") / f"{name}{suffix}" for suffix in SUFFIXES]


def _choose(request: WatchRequest, saved: Saved, env: ScalarEnvs, view: View, warn: Callable[[str], None]) -> Chosen:
    """Play the games as `evaluate` does, and choose."""
    config = saved.config
    setup(config.runtime, parts=parts_of(config), warn=warn)
    greedy = config.evaluation.greedy if request.greedy is None else request.greedy
    seed = _seed(request, saved)
    with evaluation_envs(config, request.episodes, seed) as envs:
        if request.saliency and not is_image(envs.observation_space.low):
            raise UserError(f"--saliency needs observations that are images, and those of {config.env.id} are not.")
        policy = restored_policy(saved, config, envs.observation_space, envs.num_actions)
        with view.part("playing", request.episodes) as part:
            played = play(
                policy,
                envs,
                request.episodes,
                greedy=greedy,
                seed=seed,
                on_episode=lambda episode: part.advance(),
                on_step=part.tick,
            )
    check_scores(played, config.env.id)
    return Chosen(request, saved, policy, env, greedy, seed, played, choose(played, request.choice), view)


def _seed(request: WatchRequest, saved: Saved) -> int:
    return saved.config.seed if request.seed is None else request.seed


def _think(chosen: Chosen) -> Thoughts:
    with _part(chosen, "asking the network") as part:
        steps = _counted(chosen, part)
        return think(chosen.policy, chosen.saved.config, steps, saliency=chosen.request.saliency)


def _part(chosen: Chosen, name: str) -> Part:
    return chosen.view.part(name, len(chosen.game.actions))


def _counted(chosen: Chosen, part: Part) -> Iterator[Step]:
    for step in replay(chosen.env, chosen.game):
        yield step
        part.advance()


def _caption(chosen: Chosen) -> Caption:
    config, env, request = chosen.saved.config, chosen.env, chosen.request
    game = atari_game(config.env.id)
    return Caption(
        title=game.name if game else config.env.id,
        subtitle=(
            f"after {chosen.saved.env_steps:,} training steps, {way(chosen.policy, greedy=chosen.greedy)} actions, "
            f"{chosen_of(request.choice, request.episodes)}, seed {chosen.game.episode.seed}"
        ),
        action_names=env.action_names,
        steps_per_second=env.frames_per_second / env.frames_per_step,
        pixel_aspect=ATARI_ASPECT if game else 1.0,
        value_meaning=value_meaning(config),
        saliency=request.saliency,
    )


def value_meaning(config: Config) -> tuple[str, str]:
    """What the value estimates, and what came of it, in two lines of the picture."""
    rewards = "rewards' signs" if clips_rewards(config.env) else "rewards"
    end = "the next lost life or the end" if config.env.cut_on_life_loss and atari_game(config.env.id) else "the end"
    bonus = config.algorithm.BONUS
    note = f"the value counts {bonus} too" if bonus else "the value where a time limit cuts it"
    return f"the sum of {rewards} from here to {end},", f"discounted by {config.algorithm.gamma:g} a step; {note}"


def _watched(chosen: Chosen, frames: int, files: list[Path]) -> Watched:
    episode = chosen.game.episode
    return Watched(
        env=chosen.saved.config.env.id,
        checkpoint=str(chosen.saved.path),
        env_steps=chosen.saved.env_steps,
        policy=way(chosen.policy, greedy=chosen.greedy),
        seed=chosen.seed,
        choice=chosen.request.choice,
        scores=tuple(game.episode.episode_return for game in chosen.played),
        score=episode.episode_return,
        game_seed=episode.seed,
        length=episode.length,
        frames=frames,
        frames_per_second=chosen.env.frames_per_second,
        saliency=chosen.request.saliency,
        files=tuple(str(file) for file in files),
    )
