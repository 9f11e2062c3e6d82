"""Exported networks: the same outputs in other programs, true cards, and nothing left of an export that fails."""

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import ale_py
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_one_sentence, small_config
from gymnasium.spaces import Box

from a2c.config import Config, CrashError, ModelConfig, UserError, build_config
from a2c.envs import action_names, make_vec_env
from a2c.export import export as exporting
from a2c.export.card import make_card, markdown
from a2c.export.export import export
from a2c.networks.model import Bias, build_model
from a2c.run.checkpoint import Saved, restored_policy
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train

PIXELS, PRECISIONS = ("scaled", "standardized"), ("float32", "mixed_bfloat16")
NETWORKS = {
    "nature": {"env": {"screen_size": 36}, "model": {"name": "nature"}},
    "small": {},
    "impala": {"env": {"screen_size": 21}, "model": {"name": "impala"}},  # pooled at odd sizes
    "mlp": {"env": {"id": "CartPole-v1"}, "model": {"name": "mlp"}},
}
INTEGRATION, SLOW = pytest.mark.integration, pytest.mark.slow
KINDS = [  # every setting is among those of the integration tests
    pytest.param(network, pixels, precision, marks=SLOW if slow else INTEGRATION)
    for network, slows in {"nature": (1, 1, 1, 0), "small": (1, 0, 1, 1), "impala": (0, 1, 1, 1)}.items()
    for (pixels, precision), slow in zip(itertools.product(PIXELS, PRECISIONS), slows, strict=True)
] + [
    pytest.param(network, pixels, precision, marks=INTEGRATION)
    for network, pixels in (("small", "motion"), ("mlp", "scaled"))
    for precision in PRECISIONS
]
CHECKS = {
    "float32": [("savedmodel", "the agent", 1e-4), ("policy.onnx", "the agent", 1e-4)],
    "mixed_bfloat16": [
        ("savedmodel", "the agent", 0.05),
        ("policy.onnx", "the agent", 0.05),
        ("policy.onnx", "the same weights in float32", 1e-4),
    ],
}


def config_of(network: str, pixels: str = "scaled", precision: str = "float32", **more: object) -> Config:
    """One update with a high rate, so that no bias is zero and no two actions are as likely."""
    sections = NETWORKS[network]
    values = {
        "total_env_steps": 32,
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "logging": {"trackers": []},
        "runtime": {"precision": precision},
        **sections,
        "model": {"pixels": pixels, **sections.get("model", {})},
        **more,
    }
    return small_config(**values)


@pytest.fixture(scope="module")
def pong(tmp_path_factory) -> Path:
    """A run that was evaluated at its end."""
    folder = tmp_path_factory.mktemp("export") / "pong"
    sections = {"env": {"max_frames_per_episode": 400}, "evaluation": {"episodes": 1}}
    train(config_of("small", "standardized", **sections), folder)
    return folder


@pytest.fixture(scope="module")
def savedmodel(pong, tmp_path_factory) -> Path:
    """Its folder, without the ONNX file, which needs more packages."""
    return export(pong, out=tmp_path_factory.mktemp("savedmodel") / "out", formats=["savedmodel"]).folder


@pytest.fixture(scope="module")
def exported(pong) -> Path:
    """A folder with both formats."""
    return export(pong).folder


def play(config: Config, count: int) -> np.ndarray:
    """Observations [count, *obs] after some random steps."""
    rng = np.random.default_rng(0)
    env = config.env.model_copy(update={"num_envs": count})
    with make_vec_env(env, seed=5, stream="test") as envs:
        observations = envs.reset()
        for _ in range(9):
            observations = envs.step(rng.integers(envs.num_actions, size=count)).observations
    return observations


def wanted_outputs(run: Path, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    saved = find_checkpoint(run)
    with make_vec_env(saved.config.env, seed=0) as envs:
        policy = restored_policy(saved, saved.config, envs.observation_space, envs.num_actions)
    logits, values = policy.model(observations)
    powers = np.exp(logits.numpy().astype(np.float64))
    return powers / powers.sum(axis=1, keepdims=True), values.numpy()


def without_a2c(code: str, folder: Path) -> str:
    """Run code in a fresh process that cannot import a2c; what it printed."""
    code = f"import sys; sys.modules['a2c'] = None\n{code}"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def assert_outputs_are_those_of_the_run(run: Path, loaded: Callable[[np.ndarray], Sequence], precision: str) -> None:
    """Of one and of five observations; ONNX calculates in float32 whatever the run did."""
    config = find_checkpoint(run).config
    tolerance = 1e-5 if precision == "float32" else 0.02
    for count in (1, 5):
        observations = play(config, count)
        wanted = wanted_outputs(run, observations)
        assert np.ptp(wanted[0], axis=1).min() > 0.01, "all actions are as likely: nothing is compared"
        for array, like in zip(loaded(observations), wanted, strict=True):
            assert (array.dtype, array.shape) == (np.float32, like.shape)
            np.testing.assert_allclose(array, like, rtol=tolerance, atol=tolerance)


def as_layer(folder: Path) -> Callable[[np.ndarray], Sequence]:
    """A SavedModel as a layer of Keras."""
    layer = keras.layers.TFSMLayer(str(folder / "savedmodel"), call_endpoint="serve")

    def outputs(observations: np.ndarray) -> list[np.ndarray]:
        found = layer(observations)
        return [found["probabilities"].numpy(), found["value"].numpy()]

    return outputs


@pytest.mark.parametrize(
    ("network", "pixels", "precision"),
    [
        pytest.param("small", "motion", "float32", marks=pytest.mark.integration),
        ("mlp", "scaled", "mixed_bfloat16"),
    ],
)
def test_a_savedmodel_gives_the_outputs_of_the_network(network, pixels, precision, tmp_path):
    train(config_of(network, pixels, precision), tmp_path / "run")
    folder, card = export(tmp_path / "run", out=tmp_path / "out", formats=["savedmodel"])
    checks = [(check["file"], check["compared_with"], check["tolerance"]) for check in card["checks"]]
    assert checks == CHECKS[precision][:1]
    assert_outputs_are_those_of_the_run(tmp_path / "run", as_layer(folder), precision)


@pytest.mark.parametrize(("network", "pixels", "precision"), KINDS)
def test_every_network_gives_the_same_outputs_in_both_formats(network, pixels, precision, tmp_path):
    import onnxruntime  # here and below, since it is of the integration tests alone

    train(config_of(network, pixels, precision), tmp_path / "run")
    folder, card = export(tmp_path / "run", out=tmp_path / "out")
    checks = [(check["file"], check["compared_with"], check["tolerance"]) for check in card["checks"]]
    assert checks == CHECKS[precision]
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    for loaded in (as_layer(folder), lambda x: session.run(["probabilities", "value"], {"observations": x})):
        assert_outputs_are_those_of_the_run(tmp_path / "run", loaded, precision)


@pytest.mark.integration
def test_a_savedmodel_needs_nothing_of_a2c(pong, savedmodel, tmp_path):
    """Neither the endpoint nor TensorFlow Serving's signature."""
    observations = play(find_checkpoint(pong).config, 5)
    np.save(tmp_path / "observations.npy", observations)
    said = without_a2c(
        "import json, numpy as np, tensorflow as tf\n"
        "loaded = tf.saved_model.load('savedmodel')\n"
        f"observations = np.load({str(tmp_path / 'observations.npy')!r})\n"
        "serving = loaded.signatures['serving_default'](observations=tf.constant(observations))\n"
        "for outputs in (loaded.serve(observations), serving):\n"
        "    print(json.dumps({name: x.numpy().tolist() for name, x in outputs.items()}))",
        savedmodel,
    )
    probabilities, value = wanted_outputs(pong, observations)
    lines = said.splitlines()
    assert len(lines) == 2
    for outputs in map(json.loads, lines):
        assert outputs.keys() == {"probabilities", "value"}
        np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-5)
        np.testing.assert_allclose(outputs["value"], value, atol=1e-5)


@pytest.mark.integration
def test_the_onnx_file_says_what_it_takes_and_gives(exported):
    import onnx
    import onnxruntime

    graph = onnx.load(exported / "policy.onnx").graph
    session = onnxruntime.InferenceSession(exported / "policy.onnx")
    assert [(x.name, x.type, x.shape) for x in session.get_inputs()] == [
        ("observations", "tensor(uint8)", ["N", 42, 42, 4])
    ]
    assert [(x.name, x.type, x.shape) for x in session.get_outputs()] == [
        ("probabilities", "tensor(float)", ["N", 6]),
        ("value", "tensor(float)", ["N"]),
    ]
    assert {"Conv", "Gemm", "Relu", "Softmax"} <= {node.op_type for node in graph.node}


@pytest.mark.integration
def test_a_run_whose_actors_need_more_environments_than_the_check_plays_is_exported(tmp_path):
    section = {"name": "a3c", "actors": 8, "rollouts": 2, "rollout_length": 2}
    env = {"id": "CartPole-v1", "num_envs": 8}
    train(config_of("mlp", precision="mixed_bfloat16", algorithm=section, env=env), tmp_path / "run")
    assert len(export(tmp_path / "run").card["checks"]) == 3


# --- the card ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["savedmodel", pytest.param("exported", marks=INTEGRATION)])
def test_the_card_is_true(pong, fixture, request):
    saved, exported = find_checkpoint(pong), request.getfixturevalue(fixture)
    card = json.loads((exported / "card.json").read_text())
    assert card["game"] == "Pong"
    assert card["training"]["env_steps"] == saved.env_steps == 32
    assert card["training"]["frames"] == 128
    assert card["config"] == saved.config.model_dump(mode="json")
    assert card["licence"].startswith("MIT")
    evaluation = json.loads((pong / "evaluations.jsonl").read_text().splitlines()[-1])
    assert (card["evaluation"]["mean"], card["evaluation"]["episodes"]) == (evaluation["mean"], 1)
    assert evaluation["checkpoint"]
    assert "checkpoint" not in card["evaluation"]  # a path on this machine
    assert "savedmodel/saved_model.pb" in card["files"]
    assert ("policy.onnx" in card["files"]) == (fixture == "exported")
    for name, digest in card["files"].items():
        assert hashlib.sha256((exported / name).read_bytes()).hexdigest() == digest
    assert hashlib.sha256(saved.path.read_bytes()).hexdigest() == card["checkpoint"]["sha256"]
    there = {str(file.relative_to(exported)) for file in exported.rglob("*") if file.is_file()}
    assert there == {*card["files"], "card.json", "card.md"}
    assert card["observation"]["sticky_action_probability"] == 0.25
    if fixture == "exported":
        assert card["versions"]["onnx"] == version("onnx")


def card_of(saved: Saved, folder: Path) -> dict:
    return make_card(saved, folder, Box(0, 255, (42, 42, 4), np.uint8), 6, (), "probabilities")


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"a2c": version("a2c")}, f"Trained by a2c {version('a2c')}: A2C"),
        ({"a2c": "0.0.7"}, f"Trained by a2c 0.0.7, exported by a2c {version('a2c')}: A2C"),
        ({"a2c": "1\n\n<b>"}, r"Trained by a2c 1\\n\\n\<b>, exported"),
        ("none", f"Trained by a2c unknown, exported by a2c {version('a2c')}: A2C"),
        (None, f"Trained by a2c unknown, exported by a2c {version('a2c')}: A2C"),
    ],
    ids=str,
)
def test_the_card_names_the_versions_that_trained_and_exported(pong, savedmodel, versions, said):
    saved = find_checkpoint(pong)
    assert said in markdown(card_of(saved._replace(meta={**saved.meta, "versions": versions}), savedmodel))


def test_nothing_of_a_strangers_checkpoint_is_live_in_the_card(pong, savedmodel):
    saved = find_checkpoint(pong)
    live, dead = "a|b <img src=x> [c](http://d) `e`", r"a\|b \<img src=x> [c]\(http://d) \`e\`"
    origin = {"file": live, "sha256": live}
    evaluation = {"mean": 1.0, "episodes": 5, "interval": None, "protocol": {}, "checkpoint": "/home/me", live: live}
    facts = {"bundle": {"version": 1, "checkpoint": origin, "evaluation": evaluation}}
    card = card_of(saved._replace(meta={**saved.meta, **facts, "init_from": live}), savedmodel)
    text = markdown(card).partition("## Configuration")[0]
    for words in (f"| init from | {dead} |", f"| {dead} | {dead} |", f"Made of {dead} (SHA-256 {dead})."):
        assert words in text
    assert live not in text
    assert "/home/me" not in json.dumps(card)


def test_the_card_names_the_algorithm(pong, savedmodel):
    saved = find_checkpoint(pong)
    ppo = small_config(algorithm={"name": "ppo"})
    for config, name in ((saved.config, "A2C"), (ppo, "PPO")):
        assert card_of(saved._replace(config=config), savedmodel)["algorithm"].startswith(name)


@pytest.mark.integration
def test_an_evaluation_of_another_step_is_not_that_of_the_card(pong, tmp_path):
    first = next(iter(sorted((pong / "checkpoints").glob("step-*.npz"))))
    assert find_checkpoint(first).env_steps == 0
    card = export(first, out=tmp_path / "out", formats=["savedmodel"]).card
    assert (card["training"]["env_steps"], card["evaluation"]) == (0, None)


@pytest.mark.integration
def test_the_code_of_the_card_runs_as_it_stands(pong, exported, tmp_path):
    """And it makes the observations that the agent was trained on."""
    blocks = re.findall(r"```python\n(.*?)```", (exported / "card.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    make, *calls = blocks
    for call in calls:
        check = f"assert probabilities.shape == (1, 6)\nnp.save({str(tmp_path / 'made.npy')!r}, observations)"
        assert without_a2c(f"{make}\n{call}\n{check}", exported).startswith("[[0.")
    env = find_checkpoint(pong).config.env.model_copy(update={"num_envs": 1})
    with make_vec_env(env, seed=0) as envs:
        wanted, _ = envs._simulator.reset(np.ones(1, np.bool_), np.array([0]))
    np.testing.assert_array_equal(np.load(tmp_path / "made.npy"), wanted)


@pytest.mark.parametrize("full", [False, True])
def test_actions_have_the_names_that_the_emulator_gives_them(full):
    config = small_config(env={"id": "Breakout", "full_action_space": full}).env
    gym.register_envs(ale_py)
    with gym.make("ALE/Breakout-v5", full_action_space=full) as env:
        assert action_names(config) == env.unwrapped.get_action_meanings()
    with make_vec_env(config, seed=0) as envs:  # what is trained on is the native environment
        native = [action.name for action in envs._simulator._envs.ale.get_action_set()]
    assert action_names(config) == native


@pytest.mark.parametrize(
    ("env_id", "names"),
    [("Catch", ["LEFT", "STAY", "RIGHT"]), ("Chain", ["LEFT", "RIGHT"]), ("CartPole-v1", ["action 0", "action 1"])],
)
def test_actions_of_other_environments(env_id, names):
    assert action_names(small_config(env={"id": env_id}).env) == names


# --- what goes wrong --------------------------------------------------------------------------------------------------


def assert_refused(run_cli, tmp_path: Path, *arguments: object, says: str, code: int = 2) -> None:
    """One sentence, and the folder is as it was."""
    before = sorted(tmp_path.rglob("*"))
    assert_one_sentence(run_cli("export", *arguments), code, says)
    assert sorted(tmp_path.rglob("*")) == before


def test_wrong_input_is_one_sentence(run_cli, pong, tmp_path):
    out, here = tmp_path / "out", ("--format", "savedmodel")
    assert_refused(run_cli, tmp_path, tmp_path / "nothing", "--out", out, *here, says="There is no run folder")
    assert_refused(
        run_cli, tmp_path, pong, "--out", out, "--env", "Breakout", *here, says="trained on Pong, not on Breakout"
    )
    assert_refused(run_cli, tmp_path, pong, "--out", out, "--format", "torch", says="torch")
    assert_refused(run_cli, tmp_path, pong, "--out", tmp_path / "no" / "out", *here, says="a folder that exists")
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(run_cli, tmp_path, tmp_path / "notes.txt", "--out", out, *here, says="not a checkpoint")
    assert_refused(run_cli, tmp_path, pong, "--out", tmp_path / "notes.txt", *here, says="is there already")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    assert_refused(run_cli, tmp_path, pong, "--out", tmp_path / "full", *here, says="is there already")
    with pytest.raises(UserError, match="no format 'torch'"):
        export(pong, out=out, formats=["torch"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(run_cli, pong, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    words = ("--out", closed / "out", "--format", "savedmodel")
    assert_refused(run_cli, tmp_path, pong, *words, says="cannot be written: Permission denied")


@pytest.mark.integration
def test_a_system_that_takes_no_new_folders(run_cli, pong):
    """As the one above, for root too."""
    words = ("--out", "/proc/sys/net/out", "--format", "savedmodel")
    assert_refused(run_cli, Path("/proc/sys/net"), pong, *words, says="cannot be written")


@pytest.mark.integration
def test_an_empty_folder_and_what_a_killed_export_left_are_no_obstacle(pong, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / ".out.tmp").mkdir()
    (tmp_path / ".out.tmp" / "half").touch()
    export(pong, out=tmp_path / "out", formats=["savedmodel"])
    assert {file.name for file in tmp_path.iterdir()} == {"out"}
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"savedmodel", "card.md", "card.json"}


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("savedmodel", (0, 2e-4)),
        ("savedmodel", (np.nan, 0)),
        pytest.param("onnx", (2e-4, 0), marks=INTEGRATION),
        pytest.param("onnx", (0, np.nan), marks=INTEGRATION),
    ],
    ids=str,
)
def test_a_file_that_differs_from_the_agent_is_refused(run_cli, file, change, pong, tmp_path, monkeypatch):
    """By more than rounding; whichever output it is; NaN differs from everything."""
    load = getattr(exporting, f"_load_{file}")

    def wrong(path, *names):
        network = load(path, *names)
        return lambda x: tuple(y + np.float32(c) for y, c in zip(network(x), change, strict=True))

    monkeypatch.setattr(exporting, f"_load_{file}", wrong)
    says = "differs from the agent"
    assert_refused(run_cli, tmp_path, pong, "--out", tmp_path / "out", "--format", file, says=says, code=1)


@pytest.mark.integration
def test_onnx_has_a_narrow_tolerance_in_bfloat16_too(tmp_path, monkeypatch):
    train(config_of("mlp", precision="mixed_bfloat16"), tmp_path / "run")
    load = exporting._load_onnx

    def wrong(path, *names):
        network = load(path, *names)
        return lambda x: (network(x)[0] + np.float32(1e-3), network(x)[1])

    monkeypatch.setattr(exporting, "_load_onnx", wrong)
    with pytest.raises(CrashError, match="the same weights in float32"):
        export(tmp_path / "run", out=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


@pytest.mark.integration
def test_onnx_needs_an_output_for_each_action(run_cli, pong, tmp_path, monkeypatch):
    """A network of C51 has more."""
    observe = exporting._observe

    def widened(policy, *arguments, **more):
        seen, (logits, values) = observe(policy, *arguments, **more), policy.model.outputs
        policy.model = keras.Model(policy.model.input, [keras.layers.Concatenate()([logits, logits]), values])
        return seen

    monkeypatch.setattr(exporting, "_observe", widened)
    says = "outputs (None, 6) and (None,), and this one has [(None, 12), (None,)]; use --format savedmodel."
    assert_refused(run_cli, tmp_path, pong, "--out", tmp_path / "out", "--format", "onnx", says=says)
    warnings = []
    export(pong, out=tmp_path / "out", warn=warnings.append)
    assert "only the SavedModel is written" in " ".join(warnings)
    assert (tmp_path / "out/savedmodel").is_dir() and not (tmp_path / "out/policy.onnx").exists()


UNWRITTEN = {  # the shape of the input, and the layer
    "its own activation": ((4,), keras.layers.Dense(3, activation="relu")),
    "no bias": ((4,), keras.layers.Dense(3, use_bias=False)),
    "dense on pixels": ((4, 4, 2), keras.layers.Dense(3)),
    "another activation": ((4,), keras.layers.Activation("gelu")),
    "a limit": ((4,), keras.layers.ReLU(6)),
    "a convolution's activation": ((4, 4, 2), keras.layers.Conv2D(2, 2, activation="relu", use_bias=False)),
    "a convolution's bias": ((4, 4, 2), keras.layers.Conv2D(2, 2)),
    "a dilation": ((4, 4, 2), keras.layers.Conv2D(2, 2, dilation_rate=2, use_bias=False)),
    "groups": ((4, 4, 2), keras.layers.Conv2D(2, 2, groups=2, use_bias=False)),
    "a reshaped image": ((4, 4, 2), keras.layers.Reshape((32,))),
    "an image of a vector": ((4,), keras.layers.Reshape((2, 2, 1))),
    "a bias of a vector": ((4,), Bias()),
}


@pytest.mark.integration
@pytest.mark.parametrize("form", UNWRITTEN)
def test_a_layer_in_a_form_that_is_not_written_is_told(form, tmp_path):
    from a2c.export.onnx_writer import write_onnx

    shape, layer = UNWRITTEN[form]
    observations = keras.Input(shape)
    x = layer(observations)
    x = keras.layers.Flatten()(x) if len(x.shape) > 2 else x
    values = keras.layers.Reshape(())(keras.layers.Dense(1)(x))
    model = keras.Model(observations, (keras.layers.Dense(2)(x), values))
    with pytest.raises(UserError, match=f"The layer '{layer.name}' .* has no ONNX form here"):
        write_onnx(model, tmp_path / "p.onnx", "softmax", "probabilities")
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
@pytest.mark.parametrize("shape", [(5, 6, 3), (3, 5, 6)])
def test_images_of_floats_are_written_in_their_own_order(shape, tmp_path):
    import onnxruntime

    from a2c.export.onnx_writer import write_onnx

    rng = np.random.default_rng(0)
    model = build_model(ModelConfig(name="mlp"), Box(-1, 1, shape, np.float32), 3, seed=0)
    write_onnx(model, tmp_path / "p.onnx", "softmax", "probabilities")
    observations = rng.normal(size=(4, *shape)).astype(np.float32)
    found = onnxruntime.InferenceSession(tmp_path / "p.onnx").run(["value"], {"observations": observations})
    np.testing.assert_allclose(found[0], model(observations)[1], rtol=1e-4, atol=1e-5)


def own_network(observation_space, num_actions: int, *, seed: int, dtype: str) -> keras.Model:
    """A layer that was never shown to be exact: only fast numerics train it, as under XLA."""
    observations = keras.Input(observation_space.shape)
    x = keras.layers.Dense(4, activation="gelu", dtype=dtype, name="mine")(observations)
    values = keras.layers.Reshape((), dtype="float32")(keras.layers.Dense(1, dtype="float32")(x))
    return keras.Model(observations, (keras.layers.Dense(num_actions, dtype="float32")(x), values))


@pytest.mark.integration
def test_a_network_that_was_trained_under_xla_is_exported(tmp_path):
    config = small_config(
        total_env_steps=32, env={"id": "CartPole-v1"}, runtime={"mode": "xla"}, logging={"trackers": []}
    )
    train(config, tmp_path / "run", model=own_network)
    written = export(tmp_path / "run", out=tmp_path / "out", formats=["savedmodel"])
    assert written.card["config"]["runtime"]["numerics"] == "auto"  # that of the training


def test_without_onnx(run_cli, pong, tmp_path, monkeypatch):
    """Asked for, a sentence; else the SavedModel alone, and how to get the other."""
    monkeypatch.setitem(sys.modules, "onnx", None)  # its import fails
    hint = "pip install 'a2c[onnx]'"
    assert_refused(run_cli, tmp_path, pong, "--out", tmp_path / "out", "--format", "onnx", says=hint)
    code, printed, complaint = run_cli("export", pong, "--out", tmp_path / "out", "--json")
    assert code == 0, complaint
    assert "only the SavedModel is written" in complaint
    assert hint in complaint
    assert [check["file"] for check in json.loads(printed)["checks"]] == ["savedmodel"]
    assert not (tmp_path / "out" / "policy.onnx").exists()


def test_the_default_folder_is_in_the_run(run_cli, tmp_path):
    train(config_of("mlp"), tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000000000032.npz"
    code, said, _ = run_cli("export", checkpoint, "--format", "savedmodel")
    assert code == 0
    assert "card.md says how to use it" in said
    folder = tmp_path / "run" / "export-000000000032"
    assert {file.name for file in folder.iterdir()} == {"savedmodel", "card.md", "card.json"}


@pytest.mark.parametrize("duelling", [pytest.param(False, marks=INTEGRATION), True])
def test_q_values_are_exported(tmp_path, duelling):
    """In both formats the numbers that the agent chooses by, and the largest of them."""
    values = {
        "total_env_steps": 64,
        "env": {"id": "CartPole-v1", "num_envs": 4},
        "algorithm": {"name": "dqn", "learning_starts": 0, "replay_capacity": 100, "duelling": duelling},
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "runtime": {"mode": "eager"},
    }
    train(build_config(values, where="test"), tmp_path / "run")
    written = export(tmp_path / "run", formats=["savedmodel"])
    assert list(written.card["outputs"]) == ["q_values", "value"]
    assert "argmax" in (written.folder / "card.md").read_text()
    saved = find_checkpoint(tmp_path / "run")
    with make_vec_env(saved.config.env, seed=0, stream="test") as envs:
        policy = restored_policy(saved, saved.config, envs.observation_space, envs.num_actions)
        observations = envs.reset()
    wanted = policy.look(observations)
    loaded = tf.saved_model.load(str(written.folder / "savedmodel"))
    outputs = loaded.serve(observations)
    np.testing.assert_allclose(outputs["q_values"], wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["value"], wanted[0].max(axis=1), rtol=1e-5, atol=1e-6)
    onnxruntime, writer = pytest.importorskip("onnxruntime"), pytest.importorskip("a2c.export.onnx_writer")
    writer.write_onnx(policy.model, tmp_path / "q.onnx", policy.head, policy.shows)
    found = onnxruntime.InferenceSession(tmp_path / "q.onnx").run(["q_values", "value"], {"observations": observations})
    for array, like in zip(found, wanted, strict=True):
        np.testing.assert_allclose(array, like, rtol=1e-4, atol=1e-5)
