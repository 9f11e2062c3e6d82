"""Where values come from: presets, and YAML files of users and runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from a2c.algorithms.sections import DEFAULT, extended
from a2c.config.schema import EnvConfig
from a2c.config.yaml_loader import load_yaml
from a2c.extensions import is_extension
from a2c.games import TOYS, atari_game, canonical_id
from a2c.messages import cut, nearest, shown, typed
from a2c.reading import read_text
from a2c.types import UserError

# The version of the keys' meaning, which a run writes into its config.yaml; CHANGES says what each version changed.
SCHEMA = 2
# beginnings of keys that change neither what is learned nor the lines of metrics
SIDE_KEYS = ("checkpoint.", "evaluation.", "logging.trackers", "logging.histograms", "runtime.cluster_wait_minutes")
LARGEST_FILE = 100_000  # bytes
FEW_ACTIONS = 9  # at most so many: an algorithm may have a preset for such games
CHANGES = {
    2: "an Atari environment is seeded after env.reseed_after steps, no longer at every episode, and "
    "evaluation.every_updates became evaluation.every_env_steps",
}


def preset_names() -> list[str]:
    """The presets that ship with the package, sorted."""
    return sorted(path.stem for path in _presets_folder().glob("*.yaml"))


def env_slug(env_id: str) -> str:
    """`ALE/SpaceInvaders-v5` -> `space_invaders`, `Pong` -> `pong`: for folder and preset names."""
    name = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", env_id.rsplit("/", 1)[-1].rsplit(":", 1)[-1])
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.sub(r"[^a-z0-9_.]+", "-", name).strip("-") or "env"


def read_source(config: str | Path | None, env_id: Any, algorithm: Any) -> tuple[str, dict[str, Any]]:
    """The name and the nested values of a preset or file; by default of the preset for an environment and algorithm.

    Raises:
        UserError: if there is none, or it cannot be read.
    """
    if config is None:
        config = _default_preset(str(EnvConfig().id if env_id is None else env_id), algorithm)
    text = str(config)
    if text in preset_names():
        return text, read_config_file(_presets_folder() / f"{text}.yaml")
    path = Path(text)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:  # such as a name of 300 letters
        raise UserError(f"--config {shown(text)} cannot be read: {error.strerror}.") from None
    if text and is_folder:
        is_run = os.access(path / "config.yaml", os.R_OK)  # no error if the folder cannot be entered
        hint = f" such as {path / 'config.yaml'}, or resume the run with `a2c resume {typed(path)}`" if is_run else ""
        raise UserError(f"--config {text} is a folder; name a YAML file{hint}.")
    if text and not is_file and path.exists():
        raise UserError(f"--config {text} is not a regular file; name a YAML file.")
    if not is_file and not path.is_symlink():  # a link that leads nowhere is told when it is read
        names = preset_names()
        raise UserError(
            f"There is no preset or file {shown(text)}; presets are {', '.join(names)}.{nearest(text, names)}"
        )
    return text, read_config_file(path)


def _default_preset(env_id: str, algorithm: Any) -> str:
    """The environment's own preset if there is one for this algorithm, else that of its kind, else the algorithm's.

    A user's own algorithm uses the presets of the one that it extends.
    """
    if is_extension(algorithm):
        algorithm = extended(algorithm)
    env_id = canonical_id(env_id)
    game = atari_game(env_id)
    own = env_slug(env_id) if game or env_id in TOYS else "vector"
    if algorithm in (None, DEFAULT):
        wanted = [own, DEFAULT] if game else [own]
    elif not game:
        wanted = [f"{own}-{algorithm}", f"vector-{algorithm}"]
    else:
        few = [f"{algorithm}-few-actions"] if game.num_actions <= FEW_ACTIONS else []
        wanted = [f"{own}-{algorithm}", *few, str(algorithm)]
    return next((name for name in wanted if name in preset_names()), "atari")  # a toy without one: the classic recipe


def _presets_folder() -> Path:
    here = Path(__file__).resolve().parents[1]
    installed = here / "configs"  # in a wheel
    return installed if installed.is_dir() else here.parent / "configs"  # in a checkout


def read_config_file(path: Path) -> dict[str, Any]:
    """The nested values of a YAML configuration file; a run's `provenance` and `schema` are left out.

    Raises:
        UserError: if it cannot be read, or is of another schema than `SCHEMA`; one without a schema counts as current.
    """
    return read_run_config(path)[0]


def read_run_config(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of a run's config.yaml, and its provenance: versions, commit, and whose weights it started with.

    Raises:
        UserError: as for `read_config_file`.
    """
    values = read_yaml(path)
    provenance = values.pop("provenance", None)
    if "schema" in values:  # only a run writes it
        _check_schema(values.pop("schema"), path)
        bring_up_to_date(values)
    named = provenance.items() if isinstance(provenance, dict) else ()
    return values, {str(name): str(value) for name, value in named}


def recipe(settings: Mapping[str, Any], provenance: Mapping[str, str]) -> dict[str, Any]:
    """What is equal in runs that learn alike but for the seed: settings by dotted keys, and the weights at the start.

    Args:
        settings: all of a run, by dotted keys.
        provenance: of its config.yaml.
    """
    # a stranger's file may have keys that are no text
    kept = {key: value for key, value in settings.items() if key != "seed" and not str(key).startswith(SIDE_KEYS)}
    return {**kept, "init_from": cut(provenance.get("init_from", "none"))}


def bring_up_to_date(values: dict[str, Any]) -> None:
    """Bring an older run's values up to date: no FIRE after a lost life if it says nothing, and the short id."""
    if isinstance(env := values.get("env"), dict):
        env.setdefault("fire_on_life_loss", False)
        if isinstance(env.get("id"), str):
            env["id"] = canonical_id(env["id"])


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping of a YAML file; empty if there is nothing in it.

    Raises:
        UserError: if it cannot be read, or is no mapping.
    """
    try:
        values = load_yaml(read_text(path, LARGEST_FILE))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} cannot be read: it is no text in UTF-8.") from None
    except Exception as error:  # PyYAML may raise anything on hostile text
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = "" if mark is None else f" at line {mark.line + 1}"
        reason = "" if problem is None else f": {shown(problem)}"
        raise UserError(f"{path} is not valid YAML{place}{reason}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold sections and keys such as `optimizer:` and `seed:`, not {shown(values)}.")
    return values


def _check_schema(schema: Any, path: Path) -> None:
    if type(schema) is not int or schema < 1:
        raise UserError(f"{path}: schema={shown(schema)} is not allowed: it should be a whole number, {SCHEMA} today.")
    if schema > SCHEMA:
        raise UserError(f"{path} is of schema {shown(schema)}, this version of a2c reads schema {SCHEMA}; update a2c.")
    if schema < SCHEMA:
        changes = "; ".join(text for version, text in CHANGES.items() if version > schema)
        raise UserError(
            f"{path} is of schema {schema}, and keys have changed their meaning since: {changes}; remove the line "
            f"`schema: {schema}` to use it with today's meaning."
        )
