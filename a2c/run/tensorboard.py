"""TensorBoard's event files: writing one, and cutting those of earlier sessions."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from a2c.config import Config, dotted, dump_config
from a2c.reading import LARGEST_OWN, is_regular, open_regular
from a2c.run.files import create, remove, replacing

_EVENTS = "events.out.tfevents"
LARGEST_EVENT = 2**26  # bytes
EVALUATION = "evaluation"  # the group of whole games played beside training
# the columns beside the configuration in TensorBoard's table of runs
SCORES = ("rollout/episode_return_mean", f"{EVALUATION}/mean")


class TensorBoardWriter:
    """Writes the configuration, then scalars and histograms over env_steps, for TensorBoard; one file per session.

    Events beyond `env_steps` and evaluations beyond `evaluated` are dropped from the files of earlier sessions. The
    configuration is that of the first session.
    """

    def __init__(self, folder: Path, config: Config, *, env_steps: int, evaluated: int) -> None:
        # here, not at the top: it takes half a second and only training needs it
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        from a2c.run import summaries

        self.event_pb2, self.summary_pb2, self.summaries = event_pb2, summary_pb2, summaries
        before = sorted(file for file in folder.glob(f"{_EVENTS}.*") if is_regular(file, links=False))
        for file in before:
            _cut_events(file, env_steps, evaluated, event_pb2.Event)
        # written at once, unlike TensorBoard's own writer, whose thread would lose its queue in a kill
        self.file = create(_next_event_file(folder, before))
        self.writer = RecordWriter(self.file)
        self._add(0, file_version="brain.Event:2")
        if not any(file.exists() for file in before):  # earlier files begin with it, and TensorBoard uses the first
            self._add(0, summary=summaries.config_summary(dotted(dump_config(config)), SCORES))
        # makes a running TensorBoard hide what it has read beyond the checkpoint this session starts from
        self._add(env_steps + 1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def write(self, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        """Add one event with all scalars, by their tags; those that are None are left out."""
        summary = self.summary_pb2.Summary()
        for tag, value in scalars.items():
            if value is not None:
                summary.value.add(tag=tag, simple_value=value)
        self._add(env_steps, summary=summary)

    def write_histograms(self, env_steps: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Add one event with a histogram of each array, by their tags."""
        self._add(env_steps, summary=self.summaries.histogram_summary(arrays))

    def write_image(self, env_steps: int, tag: str, encoded: bytes, width: int, height: int) -> None:
        """Add an encoded image; TensorBoard plays an animated GIF."""
        image = self.summary_pb2.Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=encoded)
        summary = self.summary_pb2.Summary()
        summary.value.add(tag=tag, image=image)
        self._add(env_steps, summary=summary)

    def sync(self) -> None:
        """Flush to the disk."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the event file."""
        with suppress(OSError):
            self.file.close()

    def _add(self, step: int, **what: Any) -> None:
        event = self.event_pb2.Event(wall_time=time.time(), step=step, **what)
        self.writer.write(event.SerializeToString())
        self.file.flush()


def _next_event_file(folder: Path, before: list[Path]) -> Path:
    """TensorBoard's name for the next event file; it sorts after the existing ones even if the clock was set back."""
    times = [int(part) for file in before if (part := file.name.split(".")[3]).isdecimal() and len(part) <= 12]
    moment = max([int(time.time()), *(t + 1 for t in times)])
    return folder / f"{_EVENTS}.{moment:010d}.{socket.gethostname()}.{os.getpid()}"


def _cut_events(file: Path, env_steps: int, evaluated: int, event_class: Any) -> None:
    """Cut an event file after the last event to keep; remove it if there is none."""
    kept = 0
    with open_regular(file, LARGEST_OWN, links=False) as stream:
        size, whole = stream.seek(0, os.SEEK_END), stream.seek(0)
        while (record := _read_record(stream, size)) is not None:
            try:
                event = event_class.FromString(record)
            except DecodeError:
                break
            is_evaluation = any(value.tag.startswith(f"{EVALUATION}/") for value in event.summary.value)
            holds = event.HasField("summary")  # else the mark of a session's start
            if holds and event.step > (evaluated if is_evaluation else env_steps):
                break
            kept += holds
            whole = stream.tell()
        if kept and whole < size:
            _keep_beginning(stream, whole, file)
    if not kept:
        remove(file)


def _keep_beginning(stream: BinaryIO, length: int, file: Path) -> None:
    """Replace a file by a new one with its first bytes: the old one may be a hard link."""
    stream.seek(0)
    with replacing(file) as copy:
        while length and (part := stream.read(min(length, 2**20))):
            length -= copy.write(part)


def _read_record(stream: BinaryIO, size: int) -> bytes | None:
    """The next TFRecord: length (8 bytes), its checksum (4), data, checksum (4); None at the end or if incomplete."""
    header = stream.read(12)
    length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else size
    if not 0 < length <= LARGEST_EVENT or stream.tell() + length + 4 > size:
        return None
    record = stream.read(length)
    stream.seek(4, os.SEEK_CUR)
    return record
