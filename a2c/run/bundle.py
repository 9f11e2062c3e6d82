"""A bundle: an agent in one file, for others to judge, watch and start from.

It is a checkpoint without what only resuming needs: `model/*`, and `meta` with the facts about the agent under `bundle`
(the checkpoint it was made of, and an evaluation). A card beside them tells people the same. Reading it is reading a
checkpoint: it runs no code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from a2c.config import UserError, cut, dump_config
from a2c.execution.replicas import from_text
from a2c.run.archive import write_archive
from a2c.run.checkpoint import FORMAT, LARGEST_META, DamagedCheckpointError, Saved, read_checkpoint

VERSION = 1
_WEIGHT = re.compile(r"model/\d{3,}-[^/]+")  # Keras allows every name without a slash
_KEPT = ("versions", "machine", "counters", "init_from")  # of a checkpoint's header


def write_bundle(path: Path, saved: Saved, *, origin: dict[str, Any], evaluation: dict[str, Any], card: str) -> None:
    """Write an agent as a bundle, atomically; the same arguments give the same bytes.

    Args:
        path: of the file.
        saved: the agent.
        origin: the name and the digest of the checkpoint it was made of.
        evaluation: whole games that were played with it.
        card: what people are to read, as Markdown.

    Raises:
        UserError: if the file cannot be written, or its header would be too long to be read.
    """
    meta = {
        "format": FORMAT,
        "bundle": {"version": VERSION, "checkpoint": origin, "evaluation": evaluation},
        "config": dump_config(saved.config),
        **{name: saved.meta[name] for name in _KEPT if name in saved.meta},
    }
    header = from_text(json.dumps(meta))
    if header.nbytes > LARGEST_META:
        raise UserError(f"The facts about {saved.path} are too long for a bundle; look at its evaluations.jsonl.")
    weights = {f"model/{name}": array for name, array in saved.group("model").items()}
    try:
        write_archive(path, {"meta": header, **weights}, card=card)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def read_bundle(path: Path) -> Saved:
    """Read a bundle; the errors are those of `read_checkpoint`."""
    saved = read_checkpoint(path)
    match saved.meta:
        case {"bundle": {"version": int() as version}} if version > VERSION:
            raise UserError(f"{path} is a bundle of version {cut(version)}, and this a2c reads {VERSION}; update a2c.")
        case {"format": form} if form == FORMAT and facts_of(saved) and all(map(_WEIGHT.fullmatch, saved.arrays)):
            return saved
    raise DamagedCheckpointError(f"{path} is damaged or no bundle of a2c; the name of a checkpoint ends in .npz.")


def is_result(evaluation: Any) -> bool:
    """Whether a value from a file is the result of an evaluation."""
    match evaluation:
        case {"mean": float(), "episodes": int(), "interval": None | [float(), float()], "protocol": dict()}:
            return True
    return False


def facts_of(saved: Saved) -> dict[str, Any]:
    """The checkpoint and the evaluation that a bundle names, see `write_bundle`; nothing for what is no bundle."""
    match saved.meta.get("bundle"):
        case {"checkpoint": {"file": str(), "sha256": str()}, "evaluation": result} if is_result(result):
            return dict(saved.meta["bundle"])
    return {}
