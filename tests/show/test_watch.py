"""`a2c watch` from the command line: what it makes and says, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np
import pytest
from conftest import heed_sigint, rewritten, small_config, wait_for, watchable
from PIL import Image

from a2c.cli import main
from a2c.config import UserError, load_config
from a2c.evaluation.evaluate import evaluate
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train
from a2c.show.picture import GAME, GLOW
from a2c.show.watch import WatchRequest, make_video, value_meaning

DRAWN = '''
import gymnasium as gym
import numpy as np


class Drawn(gym.Env):
    """Four numbers and a colour picture of them; ends after 9 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2, start=5)
    broken_at = None

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        self.t += 1
        return self.look(), float(action == 6), self.t == 9, False, {}

    def look(self):
        self.numbers = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self.numbers

    def render(self):
        if self.render_mode == "rgb_array" and Drawn.broken_at == self.t:
            raise RuntimeError("out of paint")
        return np.full((31, 47, 3), 25 * self.t, np.uint8)


gym.register("Drawn-v0", Drawn)
'''


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watchable(tmp_path_factory, "Chain", model={"name": "mlp"})


@pytest.fixture(scope="module")
def short_pong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its games are cut after 4 seconds."""
    return watchable(tmp_path_factory, "Pong", env={"max_frames_per_episode": 240})


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, catch_run: Path) -> list[np.ndarray]:
    """The frames of a game of Catch."""
    path = tmp_path_factory.mktemp("plain") / "p.mp4"
    make_video(WatchRequest(catch_run), path)
    return frames(path)[1]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module beside the run's."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "drawn.py").write_text(DRAWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return watchable(tmp_path_factory, "drawn:Drawn-v0", model={"name": "mlp"})


def watch(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """In this process, which has TensorFlow loaded already."""
    monkeypatch.setattr(sys, "argv", ["a2c", "watch", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def frames(path: str | Path) -> tuple[dict, list[np.ndarray]]:
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["source_size"]
    return about, [np.frombuffer(raw, np.uint8).reshape(height, width, 3) for raw in reader]


def game_box(frame: np.ndarray) -> np.ndarray:
    left, top, width, height = GAME
    return frame[top : top + height, left : left + width]


def test_a_game_becomes_an_mp4_a_gif_and_a_json_that_says_what_they_are(monkeypatch, capsys, tmp_path, catch_run):
    out = tmp_path / "new" / "folder"
    code = watch(monkeypatch, catch_run, "--episode", "best", "--out", out, "--json", tmp_path / "w.json")
    text = capsys.readouterr()
    assert (code, text.err) == (0, "")
    watched = json.loads((tmp_path / "w.json").read_text())
    played = evaluate(catch_run, episodes=5)
    assert tuple(watched["scores"]) == played.returns
    assert watched["score"] == played.maximum
    at = played.returns.index(played.maximum)
    assert (watched["game_seed"], watched["length"]) == (played.seeds[at], played.lengths[at])
    assert (watched["env_steps"], watched["seed"], watched["policy"]) == (64, 7, "sampled")
    names = ["catch-64-steps-best-of-5-seed-7.mp4", "catch-64-steps-best-of-5-seed-7.gif"]
    assert watched["files"] == [str(out / name) for name in names]
    assert all(name in text.out for name in names)
    about, shown = frames(out / names[0])
    assert (about["source_size"], about["fps"], len(shown)) == ((1280, 720), 8, 11)
    assert watched["frames"] == 11
    with Image.open(out / names[1]) as image:
        assert (image.size, image.n_frames) == ((640, 360), 11)
    assert sorted(out.iterdir()) == sorted(out / name for name in names)


@pytest.mark.parametrize(
    ("env", "algorithm", "rewards", "note"),
    [
        ("Catch", "ppo", "rewards from here to the end", "the value where a time limit cuts it"),
        (
            "Pong",
            "a2c",
            "rewards' signs from here to the next lost life or the end",
            "the value where a time limit cuts it",
        ),
        ("CartPole-v1", "sac", "rewards from here to the end", "the value counts entropy bonuses too"),
    ],
)
def test_the_picture_says_what_the_value_estimates(env, algorithm, rewards, note):
    config, *_ = load_config(env_id=env, assignments=[f"algorithm.name={algorithm}"])
    assert value_meaning(config) == (f"the sum of {rewards},", f"discounted by 0.99 a step; {note}")


@pytest.mark.integration
def test_an_atari_game_has_every_frame_of_the_emulator_in_colour(tmp_path, short_pong, monkeypatch):
    """Pong's own screen, two of whose colours are no grey, at 60 frames a second; the same command, the same file."""
    video, about = tmp_path / "a.mp4", tmp_path / "a.json"
    assert watch(monkeypatch, short_pong, "--episodes", "1", "--out", video, "--json", about) == 0
    watched = json.loads((tmp_path / "a.json").read_text())
    about, shown = frames(tmp_path / "a.mp4")
    assert about["fps"] == 60
    # the last step ends with the game, which may be before its fourth frame
    assert 4 * watched["length"] - 3 <= len(shown) == watched["frames"] <= 4 * watched["length"]
    paddle = game_box(shown[160])[:, 700:720].astype(int)
    assert (paddle[:, :, 1] - paddle[:, :, 0] > 60).any(), "the green player"
    assert np.abs(game_box(shown[160]).astype(int) - game_box(shown[220])).max() > 100


def test_an_environment_of_ones_own_with_numbers_for_observations(monkeypatch, tmp_path, drawn, capsys):
    assert watch(monkeypatch, drawn, "--out", tmp_path) == 2
    assert "so that code of that module would be run" in capsys.readouterr().err
    mine = ("--env", "drawn:Drawn-v0", "--out", tmp_path / "v.mp4")
    assert watch(monkeypatch, drawn, *mine) == 0
    about, shown = frames(tmp_path / "v.mp4")
    assert (about["fps"], len(shown)) == (20, 9)
    brightness = [int(frame[64 + 315, 24 + 400].mean()) for frame in shown]
    assert np.abs(np.array(brightness) - 25 * np.arange(1, 10)).max() < 6
    assert watch(monkeypatch, drawn, *mine, "--saliency", "value") == 2
    assert "needs observations that are images" in capsys.readouterr().err


def test_another_number_of_threads_than_tensorflow_has_is_a_warning(catch_run, tmp_path):
    """As in a notebook."""
    latest, told = find_checkpoint(catch_run).path, []
    three = rewritten(latest, lambda meta: meta["config"]["runtime"].update(threads=3), to=tmp_path / "three.npz")
    make_video(WatchRequest(three, episodes=1), tmp_path / "a.mp4", warn=told.append)
    assert [sentence.partition(":")[0] for sentence in told] == ["runtime.threads=3 comes too late"]


@pytest.mark.parametrize("t", [0, 5])
def test_an_environment_that_cannot_draw_is_told_and_stops_no_training(monkeypatch, tmp_path, drawn, capsys, t):
    monkeypatch.setattr(sys.modules["drawn"].Drawn, "broken_at", t)
    assert watch(monkeypatch, drawn, "--env", "drawn:Drawn-v0", "--out", tmp_path / "v.mp4") == 2
    assert capsys.readouterr().err.startswith(
        "a2c: The environment cannot be drawn: RuntimeError: out of paint (drawn.py, line "
    )
    assert list(tmp_path.iterdir()) == []
    judged = {"evaluation": {"episodes": 1}, "logging": {"trackers": ["tensorboard"]}}
    config = small_config(env={"id": "drawn:Drawn-v0"}, model={"name": "mlp"}, **judged)
    train(config.model_copy(update={"total_env_steps": 64}), tmp_path / "run")


@pytest.mark.parametrize("saliency", ["value", "policy"])
def test_a_saliency_glows_where_something_is_to_be_seen(tmp_path, catch_run, plain, saliency):
    """In Catch only the ball and the paddle can be blurred away, so nothing glows far from both."""
    make_video(WatchRequest(catch_run, saliency=saliency), tmp_path / "s.mp4")
    _, dyed = frames(tmp_path / "s.mp4")
    glowing = 0
    for a, b in zip(dyed, plain, strict=True):
        box = game_box(a).astype(int)
        glow = np.minimum(box[:, :, 1], box[:, :, 2]) - box[:, :, 0] > 40
        things = (game_box(b).max(axis=2) > 100).astype(np.uint8)
        distance = cv2.distanceTransform(1 - things, cv2.DIST_L2, 5)
        glowing += glow.sum()
        assert not glow[distance > 300].any()  # of 576 x 576: a move, a spot, and the way between two spots
    assert glowing > 1000
    assert GLOW[0] < 60 < min(GLOW[1:])


def test_greedy_best_of_three_of_another_seed_has_a_name_of_its_own(tmp_path, catch_run):
    watched = make_video(WatchRequest(catch_run, choice="worst", episodes=3, greedy=True, seed=9), tmp_path)
    assert watched.policy == "greedy"
    assert watched.scores == evaluate(catch_run, episodes=3, greedy=True, seed=9).returns
    assert [Path(file).name for file in watched.files] == [
        f"catch-64-steps-worst-of-3-seed-9-greedy{suffix}" for suffix in (".mp4", ".gif")
    ]


def test_by_default_videos_stand_in_the_run_also_of_a_checkpoint_file(tmp_path, catch_run):
    run = shutil.copytree(catch_run, tmp_path / "run")
    (checkpoint,) = (run / "checkpoints").glob("step-*64.npz")
    watched = make_video(WatchRequest(checkpoint))
    assert {Path(file).parent for file in watched.files} == {run / "videos"}


MISTAKES = {
    "nothing there": (["nothing"], "There is no run folder or checkpoint nothing"),
    "another game": (["{run}", "--env", "Pong"], "was trained on Catch, not on Pong"),
    "no games": (["{run}", "--episodes", "0"], "--episodes"),
    "another kind of file": (["{run}", "--out", "x.avi"], "--out x.avi must end in .mp4 or .gif, or be a folder"),
    "a folder that cannot be": (["{run}", "--out", "/proc/no/x.mp4"], "The folder /proc/no cannot be made"),
    "a folder below a file": (["{run}", "--out", __file__ + "/y/x.mp4"], "cannot be made"),
    "no pictures": (["{chain}"], "env.id=Chain has no pictures to show"),
    "no terminal": (["{run}", "--terminal"], "--terminal needs a terminal"),
    "a video in a terminal": (["{run}", "--terminal", "--out", "x"], "--out has no meaning"),
    "no such choice": (["{run}", "--episode", "third"], "third"),
    "no such saliency": (["{run}", "--saliency", "all"], "all"),
    "a seed below 0": (["{run}", "--seed", "-1"], "--seed"),
    "no such folder": (["{run}", "--json", "no/x.json"], "a folder that exists"),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    tmp_path, monkeypatch, capsys, catch_run, chain, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code = watch(monkeypatch, *(text.format(run=catch_run, chain=chain) for text in arguments))
    text = capsys.readouterr().err
    assert code == 2
    assert sentence in text
    assert text.startswith("a2c: ")
    assert text.count("\n") == 1
    assert list(tmp_path.rglob("*")) == []
    assert not (chain / "videos").exists()


def test_an_agent_whose_weights_do_not_fit_leaves_no_folder(tmp_path, catch_run, monkeypatch):
    monkeypatch.setattr("a2c.show.watch.restored_policy", lambda *_: (_ for _ in ()).throw(UserError("no")))
    with pytest.raises(UserError, match="no"):
        make_video(WatchRequest(catch_run), tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_is_drawn_leaves_nothing(tmp_path, pong_run, number):
    out, work = tmp_path / "out", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "a2c", "watch", str(pong_run), "--episodes", "1", "--out", str(out)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(work)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_sigint,
    )
    wait_for(lambda: any(file.stat().st_size for file in work.glob("a2c-*/*.mp4")), process)  # the encoder has begun
    process.send_signal(number)
    text, errors = process.communicate(timeout=300)
    assert (process.returncode, text, errors) == (128 + number, "", "")
    assert not out.exists()
    assert not list(work.iterdir())
