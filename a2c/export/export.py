"""Export: a checkpoint's network for other programs, loaded again and checked, with a card; or an agent as a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from a2c.algorithms.policy import Policy, Shown
from a2c.config import Config, CrashError, UserError, changed, env_slug
from a2c.envs import VecEnv, make_vec_env
from a2c.evaluation.evaluate import evaluate
from a2c.execution.runtime import parts_of, setup, stream_seed
from a2c.export.card import (
    ONNX,
    SAVEDMODEL,
    agent_facts,
    bundle_markdown,
    evaluation_of,
    make_card,
    markdown,
    trained_with,
    without_games,
)
from a2c.run.bundle import is_result, write_bundle
from a2c.run.checkpoint import Saved, restored_policy
from a2c.run.files import BUNDLE, new_folder, try_writing, write_atomically
from a2c.run.logs import finite
from a2c.run.lookup import command_for, run_folder, trusted_checkpoint

FORMATS = ("savedmodel", "onnx")
# Largest differences allowed, each relative to max(1, |number|). float32: sums in another order.
# bfloat16 has 8 bits, and other graph rewrites round elsewhere; ONNX computes in float32.
TOLERANCES = {"float32": 1e-4, "mixed_bfloat16": 0.05}
NUM_ENVS, STEPS = 4, 31  # of the games that give the 128 observations to compare

Outputs = tuple[np.ndarray, np.ndarray]  # probabilities or Q-values [N, A], values [N]
Network = Callable[[np.ndarray], Outputs]


class Bundle(NamedTuple):
    """The result of packing an agent."""

    file: Path
    facts: dict[str, Any]
    command: str  # that judges it, wherever it is


class Export(NamedTuple):
    """The result of an export."""

    folder: Path
    card: dict[str, Any]


def export(
    path: str | Path,
    *,
    out: Path | None = None,
    formats: Sequence[str] = (),
    env_id: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Export:
    """Write a checkpoint's network as SavedModel and ONNX, with its cards; all files or none.

    Both take `observations` [N, *obs] as the environment gives them, and return `probabilities` or `q_values` [N, A]
    (see `Policy.shows`) and `value` [N], float32.

    Args:
        path: a checkpoint file, or a run folder (its latest good checkpoint).
        out: the new folder. Default: `export-<env_steps>` in the run's folder.
        formats: of FORMATS. Default: all that can be written with the installed packages.
        env_id: as for `evaluate`.
        warn: called with a sentence for each damaged checkpoint that was skipped, for a format left out, and if
            TensorFlow already has another number of threads.

    Raises:
        UserError: if there is no such checkpoint, it does not fit, a format cannot hold its network, or the folder
            cannot be written.
        CrashError: if a reloaded file does not give the agent's outputs; all files are removed.
    """
    wanted = _available(formats, warn)
    saved = trusted_checkpoint(Path(path), env_id, warn)
    out = out or run_folder(saved.path) / f"export-{saved.env_steps:012d}"
    _check_new(out)
    config = _to_play(saved.config)
    setup(config.runtime, parts=parts_of(saved.config), warn=warn)
    with make_vec_env(config.env, seed=config.seed, stream="export") as envs:
        policy = restored_policy(saved, config, envs.observation_space, envs.num_actions)
        observations = _observe(policy, envs, seed=stream_seed(config.seed, "export actions"))
    outputs = [tuple(output.shape) for output in policy.model.outputs]
    if "onnx" in wanted and outputs != [(None, envs.num_actions), (None,)]:
        needs = f"ONNX needs a network with outputs (None, {envs.num_actions}) and (None,)"
        wanted = _without_onnx(formats, f"{needs}, and this one has {outputs}; use --format savedmodel.", warn)
    try:
        with new_folder(out) as folder:
            checks = _write_networks(saved, policy, envs, observations, wanted, folder)
            card = make_card(saved, folder, envs.observation_space, envs.num_actions, checks, policy.shows)
            write_atomically(folder / "card.json", json.dumps(card, indent=2) + "\n")
            write_atomically(folder / "card.md", markdown(card))
    except UnicodeEncodeError:
        raise UserError(
            f"TensorFlow cannot write to {str(out)!a}, a name that is no text; name another with --out."
        ) from None
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or str(error).rpartition("; ")[2]  # TensorFlow's starts with paths
        raise UserError(f"The folder {out} cannot be written: {reason}.") from None
    return Export(out, card)


def export_bundle(
    path: str | Path,
    *,
    out: Path | None = None,
    env_id: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Bundle:
    """Write a checkpoint's agent as one file, a bundle; the same checkpoint gives the same bytes.

    If its run has no evaluation of it, whole games are played as `evaluate` does by default.

    Args:
        path: a checkpoint, a bundle, or a run folder (its latest good checkpoint).
        out: the file, or an existing folder for it. Default: `<game>-<env_steps>-steps.a2c` in the run's folder.
        env_id: as for `evaluate`.
        warn: as for `evaluate`.

    Raises:
        UserError: if there is no such checkpoint, it does not fit, or the file cannot be written.
    """
    saved = trusted_checkpoint(Path(path), env_id, warn)
    file = _bundle_file(out, saved)
    config = _to_play(saved.config)
    setup(config.runtime, parts=parts_of(saved.config), warn=warn)
    with make_vec_env(config.env, seed=config.seed, stream="export") as envs:
        policy = restored_policy(saved, config, envs.observation_space, envs.num_actions)
        facts = agent_facts(saved, envs.observation_space, envs.num_actions, policy.shows)
    evaluation = evaluation_of(saved)
    if evaluation is None or not is_result(evaluation):
        evaluation = without_games(finite(asdict(evaluate(saved.path, env_id=env_id, warn=warn))))
    facts |= {"evaluation": evaluation, "versions": trained_with(saved)}
    uses = ("eval", "watch", "train --config config.yaml --init-from")
    card = bundle_markdown(facts, [command_for(use, Path("FILE"), config) for use in uses])
    write_bundle(file, saved, origin=facts["checkpoint"], evaluation=evaluation, card=card)
    return Bundle(file, facts, command_for("eval", Path(file.name), config))


def _bundle_file(out: Path | None, saved: Saved) -> Path:
    """The file to write, in a folder that can be written to."""
    if out is None or out.is_dir():
        out = (out or run_folder(saved.path)) / f"{env_slug(saved.config.env.id)}-{saved.env_steps}-steps{BUNDLE}"
    if out.suffix != BUNDLE:
        raise UserError(f"--out {out} must end in {BUNDLE}, or be a folder that exists.")
    try:
        try_writing(out.absolute().parent)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from None
    return out


def _to_play(config: Config) -> Config:
    """The configuration to play a few games; eager, as they are not worth a trace."""
    env = config.env.model_copy(update={"num_envs": NUM_ENVS})
    # fast numerics allow every layer, and TensorFlow rewrites graphs as in the programs that will load the SavedModel
    runtime = config.runtime.model_copy(update={"mode": "eager", "numerics": "fast"})
    return config.model_copy(update={"env": env, "runtime": runtime})


def _write_networks(
    saved: Saved, policy: Policy, envs: VecEnv, observations: np.ndarray, formats: Sequence[str], folder: Path
) -> list[dict[str, Any]]:
    """Write each format, load it again, and compare."""
    precision = saved.config.runtime.precision
    truth = "the agent", _by_policy(policy), TOLERANCES[precision]
    checks = []
    if "savedmodel" in formats:
        _write_savedmodel(policy, folder / SAVEDMODEL)
        checks.append(_check(SAVEDMODEL, _load_savedmodel(folder / SAVEDMODEL, policy.shows), *truth, observations))
    if "onnx" in formats:
        from a2c.export.onnx_writer import write_onnx  # imported here, since onnx is an optional package

        write_onnx(policy.model, folder / ONNX, policy.head, policy.shows)
        network = _load_onnx(folder / ONNX, policy.shows)
        checks.append(_check(ONNX, network, *truth, observations))
        if precision != "float32":
            # same arithmetic as in the file, so that the narrow tolerance holds
            config = _to_play(changed(saved.config, {"runtime.precision": "float32"}))
            twin = restored_policy(saved, config, envs.observation_space, envs.num_actions)
            like = "the same weights in float32", _by_policy(twin), TOLERANCES["float32"]
            checks.append(_check(ONNX, network, *like, observations))
    return checks


def _check(
    file: str, network: Network, compared_with: str, truth: Network, tolerance: float, observations: np.ndarray
) -> dict[str, Any]:
    """Compare two networks on all observations at once, and on the first alone; see `_differences`.

    Raises:
        CrashError: if they differ by more than the tolerance.
    """
    differences = [_differences(network(batch), truth(batch)) for batch in (observations, observations[:1])]
    actions, value = np.max(differences, axis=0).tolist()
    if not (actions <= tolerance and value <= tolerance):  # also true for NaN
        raise CrashError(
            f"{file}, loaded again, differs from {compared_with} by up to {actions:.2g} in what it tells of "
            f"actions and {value:.2g} in value, and {tolerance:g} is allowed: nothing was written; another "
            "format may do, and `a2c doctor` says what is wrong here."
        )
    return {
        "file": file,
        "compared_with": compared_with,
        "observations": len(observations),
        "actions": actions,
        "value": value,
        "tolerance": tolerance,
    }


def _differences(found: Outputs, wanted: Outputs) -> tuple[float, float]:
    """The largest differences in what is told of actions and in values, relative to max(1, |number|)."""
    for array, like in zip(found, wanted, strict=True):
        if array.shape != like.shape or array.dtype != np.float32:
            raise CrashError(f"An exported network gives {array.dtype} {array.shape}, not float32 {like.shape}.")
    actions, value = (
        float((np.abs(one - other) / np.maximum(1, np.abs(other))).max())
        for one, other in zip(found, wanted, strict=True)
    )
    return actions, value


def _observe(policy: Policy, envs: VecEnv, *, seed: int) -> np.ndarray:
    """Observations [N, *obs] of the first steps of a few games that the agent plays."""
    seen = [envs.reset()]
    for draw in range(STEPS):
        actions = policy.act(seen[-1], np.array([seed, draw], np.int64))
        seen.append(envs.step(actions).observations)
    return np.concatenate(seen)


def _by_policy(policy: Policy) -> Network:
    def network(observations: np.ndarray) -> Outputs:
        looks, values = policy.look(observations)
        return np.exp(looks) if policy.shows == "probabilities" else looks, values

    return network


# --- formats ----------------------------------------------------------------------------------------------------------


def _available(formats: Sequence[str], warn: Callable[[str], None]) -> Sequence[str]:
    """The requested formats; if none, all that can be written with the installed packages."""
    if unknown := [name for name in formats if name not in FORMATS]:
        raise UserError(f"There is no format {unknown[0]!r}; the formats are {' and '.join(FORMATS)}.")
    try:
        if "onnx" in (formats or FORMATS):
            import_module("onnx"), import_module("onnxruntime")
    except ImportError as error:
        return _without_onnx(formats, f"ONNX needs onnx and onnxruntime ({error}): pip install 'a2c[onnx]'.", warn)
    return formats or FORMATS


def _without_onnx(formats: Sequence[str], why: str, warn: Callable[[str], None]) -> Sequence[str]:
    """The SavedModel alone, with a warning; raises UserError if formats, and so ONNX, were requested."""
    if formats:
        raise UserError(why) from None
    warn(f"only the SavedModel is written. {why}")
    return FORMATS[:1]


def _check_new(out: Path) -> None:
    """Check, before the work, that the folder can be made; an empty folder is allowed."""
    if out.name and out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} is there already, and an export is a new folder; name another with --out.")
    if not (out.name and out.absolute().parent.is_dir()):
        raise UserError(f"--out {out} must be a new folder in a folder that exists.")


def _write_savedmodel(policy: Policy, path: Path) -> None:
    archive, inputs = keras.export.ExportArchive(), policy.model.input
    archive.track(policy.model)
    archive.add_endpoint("serve", policy.serve, [tf.TensorSpec(inputs.shape, inputs.dtype, name="observations")])
    archive.write_out(str(path), verbose=False)


def _load_savedmodel(path: Path, shows: Shown) -> Network:
    loaded = tf.saved_model.load(str(path))

    def network(observations: np.ndarray) -> Outputs:
        outputs = loaded.serve(observations)
        return outputs[shows].numpy(), outputs["value"].numpy()

    return network


def _load_onnx(path: Path, shows: Shown) -> Network:
    session = import_module("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda observations: tuple(session.run([shows, "value"], {"observations": observations}))
