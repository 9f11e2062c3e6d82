"""Files are read back by other programs; nothing is left of one that was not finished."""

from __future__ import annotations

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from a2c.config import UserError
from a2c.show.picture import HEIGHT, WIDTH
from a2c.show.video import encoding

COLOURS = [(200, 40, 30), (30, 180, 60), (20, 60, 220), (240, 240, 240)]


def frame(number: int) -> np.ndarray:
    """Four quarters in changing colours."""
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for i, rows in enumerate((slice(0, HEIGHT // 2), slice(HEIGHT // 2, None))):
        for j, columns in enumerate((slice(0, WIDTH // 2), slice(WIDTH // 2, None))):
            picture[rows, columns] = COLOURS[(number // 8 + 2 * i + j) % 4]
    return picture


def read(path: Path) -> tuple[dict, list[np.ndarray]]:
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    return about, [np.frombuffer(raw, np.uint8).reshape(HEIGHT, WIDTH, 3) for raw in reader]


def test_an_mp4_has_every_frame_in_its_colours_at_its_speed(tmp_path):
    path = tmp_path / "v.mp4"
    with encoding([path], 60) as write:
        for number in range(40):
            write(frame(number))
    about, frames = read(path)
    assert about["source_size"] == (WIDTH, HEIGHT)
    assert about["fps"] == 60
    assert about["codec"] == "h264"
    assert about["pix_fmt"].startswith("yuv420p")  # which every browser plays
    assert len(frames) == 40
    for number, shown in enumerate(frames):
        for y, x in ((100, 100), (100, 1000), (600, 100), (600, 1000)):
            assert np.abs(shown[y, x].astype(int) - frame(number)[y, x]).max() < 12
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("speed", "frames", "kept", "milliseconds"), [(60, 40, 10, 66.7), (8, 11, 11, 125)])
def test_a_gif_has_half_the_size_and_at_most_15_frames_a_second(tmp_path, speed, frames, kept, milliseconds):
    path = tmp_path / "v.gif"
    with encoding([path], speed) as write:
        for number in range(frames):
            write(np.roll(frame(number), number, axis=1))  # each one differs: equal ones would be merged
    with Image.open(path) as image:
        assert image.size == (WIDTH // 2, HEIGHT // 2)
        assert image.n_frames == kept
        durations = []
        for i in range(kept):
            image.seek(i)
            durations.append(image.info["duration"])
        image.seek(0)
        first = np.asarray(image.convert("RGB"))
    assert np.mean(durations) == pytest.approx(milliseconds, rel=0.06)
    assert np.abs(first[50, 50].astype(int) - COLOURS[0]).max() < 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_what_is_raised_on_the_way_leaves_no_file_and_spares_those_of_before(tmp_path, error):
    files = [tmp_path / "v.mp4", tmp_path / "v.gif"]
    files[0].write_bytes(b"of before")
    with pytest.raises(error), encoding(files, 60) as write:
        write(frame(0))
        raise error
    assert list(tmp_path.iterdir()) == [files[0]]
    assert files[0].read_bytes() == b"of before"


@pytest.mark.parametrize("reads", ["head -c 1000", "cat"])
def test_an_encoder_that_fails_is_told_and_leaves_nothing(tmp_path, monkeypatch, reads):
    """As on a full disk: a false ffmpeg that reads a little, or all, complains and goes."""
    false = tmp_path / "ffmpeg"
    false.write_text(f"#!/bin/sh\n{reads} > /dev/null\necho 'No space left on device' >&2\nexit 1\n")
    false.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(false))
    folder = tmp_path / "out"
    folder.mkdir()
    with (
        pytest.raises(UserError, match=r"The video cannot be written: No space left on device\.$"),
        encoding([folder / "v.mp4"], 60) as write,
    ):
        for number in range(100):
            write(frame(number))
    assert list(folder.iterdir()) == []


def test_a_machine_without_an_encoder_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("imageio_ffmpeg._utils._get_ffmpeg_exe", lambda: None)  # as if the wheel had none
    with pytest.raises(UserError, match=r"^No ffmpeg is found"), encoding([tmp_path / "v.mp4"], 60):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be written"), encoding([tmp_path / "no" / "v.mp4"], 60):
        pass


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError("boom"), FileNotFoundError(2, "No such file", "/a/rom")])
def test_an_error_of_the_block_passes_as_it_is(tmp_path, error):
    """So that a reader of our output who has left, or a file of the game that is not there, is told as such."""
    with pytest.raises(OSError) as raised, encoding([tmp_path / "v.mp4", tmp_path / "v.gif"], 60) as write:
        write(frame(0))
        raise error
    assert raised.value is error
    assert list(tmp_path.iterdir()) == []


def refuse(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("a2c.show.video.tempfile.TemporaryDirectory", "The video"),
        ("a2c.show.video.shutil.copyfileobj", "{file}"),
        ("a2c.run.files.os.replace", "{file}"),
    ],
)
def test_our_own_writing_that_fails_before_and_after_the_block_is_one_sentence(tmp_path, monkeypatch, call, what):
    file = tmp_path / "v.mp4"
    monkeypatch.setattr(call, refuse)
    sentence = f"{what.format(file=file)} cannot be written: No space left on device."
    with pytest.raises(UserError) as told, encoding([file], 60) as write:
        write(frame(0))
    assert str(told.value) == sentence
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_is_not_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "none"))
    with (
        pytest.raises(UserError, match=r"^The video cannot be written: No such file"),
        encoding([tmp_path / "v.mp4"], 60),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
