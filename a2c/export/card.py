"""The card of an exported network or agent: its origin, its inputs and outputs, how to use it; as JSON and Markdown."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from a2c.algorithms.policy import Shown
from a2c.config import EnvConfig, cut, dump_config
from a2c.envs import action_names
from a2c.evaluation.scores import noops, wrappers
from a2c.execution.machine import versions
from a2c.games import atari_game
from a2c.reading import open_regular
from a2c.run.bundle import facts_of
from a2c.run.checkpoint import Saved
from a2c.run.logs import logged
from a2c.run.lookup import run_folder

FORMAT = 1
SAVEDMODEL, ONNX = "savedmodel", "policy.onnx"  # in the card's folder


def make_card(
    saved: Saved,
    folder: Path,
    observation_space: Any,
    num_actions: int,
    checks: Sequence[Mapping[str, Any]],
    shows: Shown,
) -> dict[str, Any]:
    """All that a user of the files in `folder` must know, as plain values.

    Args:
        saved: the checkpoint that the files were made from.
        folder: with all files except the cards.
        observation_space: Gymnasium Box of one observation.
        num_actions: A.
        checks: the differences between each file's outputs and the agent's.
        shows: what the network tells of each action.
    """
    return {
        "card": FORMAT,
        **agent_facts(saved, observation_space, num_actions, shows),
        "evaluation": evaluation_of(saved),
        "checks": list(checks),
        "files": {str(file.relative_to(folder)): _sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()},
        "licence": "MIT, as a2c itself",
        "versions": {**versions(), **({"onnx": version("onnx")} if (folder / ONNX).exists() else {})},
    }


def agent_facts(saved: Saved, observation_space: Any, num_actions: int, shows: Shown) -> dict[str, Any]:
    """What is so of an agent in whatever form it is exported; the arguments are those of `make_card`."""
    config, counters = saved.config, saved.meta["counters"]
    game = atari_game(config.env.id)
    returns = counters["returns"]
    return {
        "game": config.env.id,
        "training": {
            **{name: counters[name] for name in ("env_steps", "frames", "updates", "episodes", "seconds")},
            "seed": config.seed,
            "a2c": trained_with(saved).get("a2c", "unknown"),  # the version
            "return_of_the_last_games": sum(returns) / len(returns) if returns else None,
            "last_games": len(returns),
            **({"init_from": cut(saved.meta["init_from"])} if "init_from" in saved.meta else {}),
        },
        "policy": _POLICIES[shows],
        "algorithm": config.algorithm.TITLE,
        "input": {"observations": {"dtype": str(observation_space.dtype), "shape": ["N", *observation_space.shape]}},
        "outputs": {
            shows: {"dtype": "float32", "shape": ["N", num_actions]},
            "value": {"dtype": "float32", "shape": ["N"]},
        },
        "actions": action_names(config.env),
        "observation": {
            **(atari_preprocessing(config.env, game.rom) if game else {"as": f"{config.env.id} gives it"}),
            **wrappers(config.env),
        },
        "checkpoint": origin_of(saved),
        "config": dump_config(config),
    }


def atari_preprocessing(env: EnvConfig, rom: str) -> dict[str, Any]:
    """The steps between the emulator and the network, and the rules of an episode."""
    return {
        "rom": rom,
        "action_set": "all 18" if env.full_action_space else "minimal",
        "sticky_action_probability": env.sticky_action_probability,
        "frame_skip": env.frame_skip,  # frames for which an action is repeated
        "screen": "grey, the maximum of each pixel over the last 2 frames of a step",
        "screen_size": env.screen_size,
        "resize": "by area (OpenCV's INTER_AREA), to screen_size x screen_size",
        "frame_stack": env.frame_stack,
        "stack_order": "on the last axis, oldest first, black before an episode's first screen",
        "pixels": "raw bytes 0 to 255; the network scales them itself",
        "reset": f"{'FIRE where the game has it, then ' if env.fire_reset else ''}no-ops",
        "noops": noops(env),
        "lost_life": "the game goes on; the step after it "
        + ("does FIRE where the game has it, whatever was asked" if env.fire_on_life_loss else "does what was asked"),
        "max_frames_per_episode": env.max_frames_per_episode,
    }


def origin_of(saved: Saved) -> dict[str, str]:
    """The name and the SHA-256 of the checkpoint that an agent was in first."""
    found = facts_of(saved).get("checkpoint") or {"file": saved.path.name, "sha256": _sha256(saved.path)}
    return {name: cut(found[name]) for name in ("file", "sha256")}


def trained_with(saved: Saved) -> dict[str, str]:
    """The versions that trained an agent, as its checkpoint says; none if it does not."""
    named = saved.meta.get("versions")
    return {cut(name): cut(number) for name, number in named.items()} if isinstance(named, dict) else {}


def evaluation_of(saved: Saved) -> dict[str, Any] | None:
    """A bundle's own result, else the last one for the checkpoint's step in its run's evaluations.jsonl, if any."""
    if facts := facts_of(saved):
        return without_games(facts["evaluation"])
    found = None
    for result in logged(run_folder(saved.path) / "evaluations.jsonl"):
        if result["env_steps"] == saved.env_steps:
            found = result
    return found and without_games(found)


def without_games(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result of an evaluation without its single games, and without a path on the machine where it was made."""
    return {name: value for name, value in result.items() if name not in ("returns", "lengths", "seeds", "checkpoint")}


def markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown; its Python blocks run as they are, in the card's folder."""
    steps = f"{card['training']['env_steps']:,}"
    shows, spec = next(iter(card["outputs"].items()))
    trained, exported = _escaped(card["training"]["a2c"]), card["versions"]["a2c"]
    by = f"a2c {trained}" if trained == exported else f"a2c {trained}, exported by a2c {exported}"
    sections = [
        f"# {_escaped(card['game'])}: a network after {steps} agent steps",
        f"Trained by {by}: {card['algorithm']}. Facts for programs: `card.json`.",
        _table(_said(card["training"])),
        "## Evaluation",
        _evaluation_text(card["evaluation"]),
        "## What goes in and comes out",
        f"`observations` {_shape(card['input']['observations'])}; N is any number.\n\n"
        f"`{shows}` float32 {spec['shape']}: of each action. `value` float32 ['N']: the discounted return that "
        f"is expected.\n\nThe policy is {card['policy']}.".replace("'", ""),
        "## Actions",
        _actions_text(card["actions"]),
        "## Observations",
        _table(_said(card["observation"])),
        f"```python\n{observation_code(card)}```",
        *_calls(card),
        "## Checks",
        "Each file was loaded again and its outputs compared on observations of games the agent played.",
        _table({check["file"]: _check_text(check) for check in card["checks"]}, "file", "largest difference"),
        "## Files",
        f"Licence: {card['licence']}. {_origin_text(card['checkpoint'])}.",
        _table(card["files"], "file", "SHA-256"),
        "## Versions",
        _table(card["versions"]),
        "## Configuration",
        f"```json\n{json.dumps(card['config'], indent=2)}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def bundle_markdown(card: Mapping[str, Any], commands: Sequence[str]) -> str:
    """The card of a bundle as Markdown; a program finds the same facts in the bundle's header.

    Args:
        card: from `agent_facts`, with `evaluation` and the `versions` that trained the agent.
        commands: that use it.
    """
    evaluation = card["evaluation"]
    sections = [
        f"# {_escaped(card['game'])}: an agent after {card['training']['env_steps']:,} agent steps",
        f"{card['algorithm']}. This file holds its weights and these facts, and no code; `a2c` reads it as it is.",
        "\n".join(["```", *commands, "```"]),
        _table(_said(card["training"])),
        "## Evaluation",
        _evaluation_text(evaluation),
        _table(_said(evaluation["protocol"])),
        "## Policy and actions",
        f"The policy is {card['policy']}.\n\n{_actions_text(card['actions'])}",
        "## Observations",
        _table(_said(card["observation"])),
        "## Origin",
        f"{_origin_text(card['checkpoint'])}, with these versions:",
        _table(_said(card["versions"])),
        "## config.yaml",
        f"```yaml\n{yaml.safe_dump(card['config'], sort_keys=False)}```",
    ]
    return "\n\n".join(sections) + "\n"


def observation_code(card: Mapping[str, Any]) -> str:
    """Python code that makes the first observations of the card's game, or zeros if it is not an Atari game."""
    spec, seen = card["input"]["observations"], card["observation"]
    if "rom" not in seen or "wrappers" in seen:
        shape = (1, *spec["shape"][1:])
        return f"import numpy as np\n\nobservations = np.zeros({shape}, np.{spec['dtype']})  # put yours here\n"
    return f"""import numpy as np
from ale_py.vector_env import AtariVectorEnv

envs = AtariVectorEnv(
    "{seen["rom"]}",
    num_envs=1,
    frameskip={seen["frame_skip"]},
    maxpool=True,
    grayscale=True,
    img_height={seen["screen_size"]},
    img_width={seen["screen_size"]},
    stack_num={seen["frame_stack"]},
    noop_max={card["config"]["env"]["noop_max"]},
    use_fire_reset={card["config"]["env"]["fire_reset"]},
    repeat_action_probability={seen["sticky_action_probability"]},
    full_action_space={card["config"]["env"]["full_action_space"]},
    max_num_frames_per_episode={seen["max_frames_per_episode"]},
    reward_clipping=False,
)
observations, _ = envs.reset(seed=np.array([0]))
observations = np.moveaxis(observations, 1, -1)  # the frames on the last axis
"""


_POLICIES: dict[Shown, str] = {
    "probabilities": "stochastic: draw the action from the probabilities; the most probable one is the greedy policy",
    "q_values": "greedy: take the action with the largest Q-value; in training some actions were drawn evenly",
}
_GREEDY = {
    "probabilities": "greedy; to draw: np.random.choice(len(p), p=p / p.sum()), p in float64",
    "q_values": "greedy",
}
_CALLS = {
    SAVEDMODEL: """import tensorflow as tf

policy = tf.saved_model.load("savedmodel")
outputs = policy.serve(observations)
probabilities, value = outputs["probabilities"].numpy(), outputs["value"].numpy()
print(probabilities, value)
action = probabilities[0].argmax()  # {greedy}
""",
    ONNX: """import onnxruntime

session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
probabilities, value = session.run(["probabilities", "value"], {"observations": observations})
print(probabilities, value)
action = probabilities[0].argmax()  # {greedy}
""",
}


def _calls(card: Mapping[str, Any]) -> list[str]:
    shows = next(iter(card["outputs"]))
    there = {
        check["file"]: _CALLS[check["file"]].replace("{greedy}", _GREEDY[shows]).replace("probabilities", shows)
        for check in card["checks"]
    }
    return [f"### {name}, after the lines above\n\n```python\n{code}```" for name, code in there.items()]


def _evaluation_text(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "None was made of this checkpoint in training; `a2c eval` plays whole games with it."
    return _table(
        _said({name: value for name, value in evaluation.items() if name not in ("protocol", "published", "versions")})
    )


def _origin_text(checkpoint: Mapping[str, str]) -> str:
    return f"Made of {_escaped(checkpoint['file'])} (SHA-256 {_escaped(checkpoint['sha256'])})"


def _actions_text(names: Sequence[str]) -> str:
    return ", ".join(f"{index} {name}" for index, name in enumerate(names)) + "."


def _check_text(check: Mapping[str, Any]) -> str:
    return (
        f"{check['actions']:.1e} for the actions, {check['value']:.1e} in value, of {check['compared_with']}; "
        f"allowed {check['tolerance']:g}; {check['observations']} observations"
    )


def _shape(spec: Mapping[str, Any]) -> str:
    return f"{spec['dtype']} {spec['shape']}".replace("'", "")


def _said(values: Mapping[str, Any]) -> dict[str, str]:
    return {cut(name.replace("_", " ")): _number(value) for name, value in values.items()}


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if type(value) is int else cut(value)


def _table(rows: Mapping[str, Any], *headings: str) -> str:
    first, second = headings or ("", "")
    cells = (f"| {_escaped(name)} | {_escaped(value)} |" for name, value in rows.items())
    return "\n".join([f"| {first} | {second} |", "|---|---|", *cells])


def _escaped(text: Any) -> str:
    """A text, which may be a stranger's, that ends no cell of a table, and that begins no tag, link or code."""
    return re.sub(r"[|`<\\]|(?<=\])\(", lambda sign: f"\\{sign[0]}", str(text))


def _sha256(file: Path) -> str:
    with open_regular(file, 2**63) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
