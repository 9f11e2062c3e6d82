"""Write videos: MP4 and GIF."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from a2c.config import UserError
from a2c.reading import open_regular, read_end
from a2c.run.files import create, replacing
from a2c.show.picture import HEIGHT, WIDTH

GIF_FPS = 15
GIF_SCALE = 2  # half the width and height


@contextmanager
def encoding(
    files: Sequence[Path], frames_per_second: float, *, below: Path | None = None
) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that takes the frames [HEIGHT, WIDTH, 3] uint8; the files exist if the block succeeds.

    `.mp4` is H.264 at full size and speed, which every browser plays; `.gif` half the size, at most 15 frames a second.
    The encoder works in a temporary folder; `below` is as for `replacing`.

    Raises:
        UserError: if a file cannot be written; then, or if the block raises, no file is left.
    """
    with ExitStack() as stack:
        with _told("The video"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a2c-")))
            targets = {file: stack.enter_context(_replacing(file, below)) for file in files}
            parts = {file.suffix: folder / f"video{file.suffix}" for file in files}
            encoder = _Encoder(parts, folder, frames_per_second)
            stack.callback(encoder.kill)
        yield encoder.write
        with _told("The video"):
            encoder.finish()
        for file, target in targets.items():
            with _told(file), open_regular(parts[file.suffix], 2**63) as part:
                shutil.copyfileobj(part, target)


class _Encoder:
    """The ffmpeg of imageio-ffmpeg, fed through a pipe."""

    def __init__(self, parts: dict[str, Path], folder: Path, frames_per_second: float) -> None:
        self.gif = parts.get(".gif")
        self.lossless, self.palette, self.errors = folder / "frames.mkv", folder / "palette.png", folder / "errors"
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{WIDTH}x{HEIGHT}", "-r", f"{frames_per_second:g}"]
        arguments = [*source, "-i", "-"]
        if ".mp4" in parts:
            matrix = ["-vf", "scale=out_color_matrix=bt709", "-colorspace", "bt709", "-pix_fmt", "yuv420p"]
            coder = "-c:v libx264 -preset veryfast -tune animation -crf 20 -movflags +faststart"
            arguments += [*matrix, *coder.split(), "-f", "mp4", str(parts[".mp4"])]
        if self.gif:
            # a GIF has 256 colours, best chosen when all frames are known: so the frames are kept until then
            arguments += ["-vf", f"fps={min(GIF_FPS, frames_per_second):g},scale=iw/{GIF_SCALE}:-1:flags=area"]
            arguments += ["-c:v", "libx264rgb", "-preset", "ultrafast", "-qp", "0", str(self.lossless)]
        with create(self.errors) as errors:
            # a new session, so that Ctrl-C in the terminal reaches only this process
            self.process = subprocess.Popen(
                _ffmpeg(*arguments), stdin=subprocess.PIPE, stderr=errors, start_new_session=True
            )

    def write(self, frame: np.ndarray) -> None:
        assert self.process.stdin is not None and frame.shape == (HEIGHT, WIDTH, 3)
        try:
            self.process.stdin.write(frame.data)
        except BrokenPipeError:
            self._fail()

    def finish(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            self._fail()
        if self.process.wait() != 0:
            self._fail()
        if self.gif:
            self._run("-i", self.lossless, "-vf", "palettegen=max_colors=128", self.palette)
            use = "paletteuse=dither=none:diff_mode=rectangle"
            self._run("-i", self.lossless, "-i", self.palette, "-lavfi", use, "-f", "gif", self.gif)

    def kill(self) -> None:
        """Kill the encoder; no effect if it has ended."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def _run(self, *arguments: str | Path) -> None:
        with create(self.errors) as errors:
            done = subprocess.run(_ffmpeg(*map(str, arguments)), stderr=errors, start_new_session=True, check=False)
        if done.returncode != 0:
            self._fail()

    def _fail(self) -> NoReturn:
        self.process.wait()
        lines = read_end(self.errors, 10_000).splitlines() or ["the encoder ended early"]
        raise UserError(f"The video cannot be written: {lines[-1].rstrip('.')}.")


@contextmanager
def _replacing(file: Path, below: Path | None) -> Iterator[BinaryIO]:
    """As `replacing`, with UserError if it cannot be written; what the block raises passes unchanged."""
    with ExitStack() as stack:
        with _told(file):
            target = stack.enter_context(replacing(file, below=below))
        yield target
        with _told(file):
            stack.close()  # the block has succeeded: now the file gets its name


@contextmanager
def _told(what: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{what} cannot be written: {error.strerror or error}.") from None


def _ffmpeg(*arguments: str) -> list[str]:
    from imageio_ffmpeg import get_ffmpeg_exe  # only a video needs it

    try:
        return [get_ffmpeg_exe(), "-y", "-v", "error", *arguments]
    except RuntimeError:
        raise UserError("No ffmpeg is found, which encodes videos; install it, or watch with --terminal.") from None
