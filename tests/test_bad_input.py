"""Bad input: generated values, files and environments; each is one sentence that names its key, and exit code 2."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from conftest import assert_one_sentence
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence
from hypothesis import given, settings
from hypothesis import strategies as st

from a2c.config import Config, EnvConfig, UserError, all_keys, build_config, dump_config, load_config
from a2c.envs import make_vec_env
from a2c.envs.vector import EnvCrashError
from a2c.messages import MOST_MISTAKES

SECTIONS = sorted({key.split(".")[0] for key in all_keys() if "." in key})
EXAMPLES = pytest.mark.parametrize("examples", [60, pytest.param(2_000, marks=pytest.mark.slow)])

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-10, 100)
    | st.integers(-(2**8000), 2**8000)
    | st.floats()
    | st.text(max_size=20)
    | st.text(min_size=20, max_size=40).map(lambda text: text * 50)
    | st.sampled_from(["1e-3", "010", "1:30", "yes", "null", ".inf", "\ud800", "\n\n", "\x00", "\x1b[31m", "a\u2028b"])
    | st.dates()
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=10) | st.integers(), inner, max_size=5)
    ),
    max_leaves=10,
)
# nearly right: what a person might write there
sizes = st.lists(st.integers(-1, 70_000) | st.booleans() | st.floats(0, 100), max_size=5)
likely = (
    sizes | st.lists(sizes, max_size=3) | st.integers(0, 5000) | st.floats(-1, 2) | st.sampled_from(["adam", "mlp"])
)


def explore(examples: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check the same generated values every time."""

    @settings(max_examples=examples, derandomize=True, deadline=None, database=None)
    @given(strategy)
    def run(value: Any) -> None:
        check(value)

    run()


def check_build(build: Callable[[], Config], *named: str, path: str = "") -> None:
    """Either a whole configuration comes out, or one line that has the names; no other exception ever."""
    try:
        config = build()
    except UserError as error:
        sentence = str(error).replace(path, "FILE") if path else str(error)
        assert len(sentence) < 400 * MOST_MISTAKES, sentence
        assert sentence.isprintable(), sentence  # so it is one line
        assert all(name in sentence for name in named), sentence
    else:
        assert build_config(yaml.safe_load(yaml.safe_dump(dump_config(config))), where="again") == config


def check_file(file: Path, content: bytes | str, *named: str) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    check_build(lambda: load_config(config=file)[0], *named, path=str(file))


# --- values ---------------------------------------------------------------------------------------------------


@EXAMPLES
def test_any_value_of_any_key_on_the_command_line(examples):
    def check(case: tuple[str, Any]) -> None:
        key, value = case
        for text in (yaml.safe_dump(value, default_flow_style=True), str(value)):
            check_build(lambda text=text: load_config(config="atari", assignments=[f"{key}={text}"])[0], key)

    explore(examples, st.tuples(st.sampled_from(all_keys()), values | likely), check)


@EXAMPLES
def test_any_text_as_a_value_on_the_command_line(examples):
    syntax = st.text("{}[]:,&*!<>|'\"- \n\t#%@`~0123456789.eEx_abtrue\x00\x1b\u2028\ud800é", max_size=60)

    def check(case: tuple[str, str]) -> None:
        key, text = case
        check_build(lambda: load_config(config="atari", assignments=[f"{key}={text}"])[0], key)

    tagged = st.tuples(st.sampled_from(["!!int ", "!!bool ", "!!timestamp ", "!!float ", "!!set ", "!x "]), syntax)
    texts = syntax | st.text() | tagged.map("".join)
    explore(examples, st.tuples(st.sampled_from(all_keys()), texts), check)


@EXAMPLES
def test_any_value_of_any_key_in_a_file(examples, tmp_path):
    def check(case: tuple[str, Any]) -> None:
        key, value = case
        *section, leaf = key.split(".")
        content = {section[0]: {leaf: value}} if section else {leaf: value}
        check_file(tmp_path / "c.yaml", yaml.safe_dump(content), key)

    explore(examples, st.tuples(st.sampled_from(all_keys()), values | likely), check)


@EXAMPLES
def test_any_value_in_place_of_a_section(examples, tmp_path):
    def check(case: tuple[str, Any]) -> None:
        section, value = case
        check_file(tmp_path / "c.yaml", yaml.safe_dump({section: value}), section)
        for text in (f"{section}={value}", f"{section}.{value}=1"):
            check_build(lambda text=text: load_config(config="atari", assignments=[text])[0], section)

    explore(examples, st.tuples(st.sampled_from(SECTIONS), values), check)


@pytest.mark.parametrize("key", [key for key in all_keys() if type(dump_config(Config())[key.split(".")[0]]) is dict])
def test_a_truth_value_is_no_number(key):
    section, leaf = key.split(".")
    default = dump_config(Config())[section][leaf]
    if isinstance(default, bool):
        assert load_config(config="atari", assignments=[f"{key}=true"])
    else:
        with pytest.raises(UserError, match=f"{key}=true is not allowed: it should be "):
            load_config(config="atari", assignments=[f"{key}=true"])


def test_a_key_with_one_letter_less_gets_the_right_one_suggested():
    for key in all_keys():
        for i in range(len(key) % 3, len(key), 3):
            typo = key[:i] + key[i + 1 :]
            with pytest.raises(UserError) as error:
                load_config(config="atari", assignments=[f"{typo}=1"])
            assert repr(typo) in str(error.value)
            assert key in str(error.value).partition("Did you mean ")[2], str(error.value)


# --- files ----------------------------------------------------------------------------------------------------


@EXAMPLES
def test_any_file_of_yaml(examples, tmp_path):
    key = st.sampled_from([*SECTIONS, "seed", "total_env_steps", "schema", "provenance"])
    leaf = st.sampled_from([key.split(".")[-1] for key in all_keys()])
    inner = st.dictionaries(
        leaf | scalars.filter(lambda value: not isinstance(value, float)), values | likely, max_size=4
    )
    whole = values | st.dictionaries(key | st.text(max_size=10), inner | values, max_size=4)
    explore(examples, whole, lambda value: check_file(tmp_path / "c.yaml", yaml.safe_dump(value)))


@EXAMPLES
def test_any_bytes_as_a_file(examples, tmp_path):
    tokens = [
        "env",
        "seed",
        "id",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n  ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
        "*a",
        "<<",
        "!!int ",
        "!!",
    ]
    tokens += [
        "!!timestamp ",
        "!!omap ",
        "!!set ",
        "!!binary ",
        "!!python/name:os ",
        "'",
        '"',
        "|",
        ">",
        "#",
        "---",
        "%",
        "1",
    ]
    text = st.lists(st.sampled_from(tokens), max_size=30).map("".join)
    explore(examples, text | st.binary(), lambda content: check_file(tmp_path / "c.yaml", content))


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--set", "env.num_envs=true"], ["env.num_envs=true", "from 1 to 4096"]),
        (["--set", "optimizer.learning_rate=-1"], ["optimizer.learning_rate=-1", "above 0 to 1000"]),
        (["--set", "runtime.mode=turbo"], ["runtime.mode='turbo'", "graph, eager or xla"]),
        (["--set", "optimizer.lerning_rate=1"], ["optimizer.lerning_rate", "optimizer.learning_rate"]),
        (["--env", "Pong", "--steps", "511"], ["total_env_steps=511", "at least 512"]),
        (["--set", "runtime.mode=xla", "--set", "runtime.numerics=exact"], ["runtime.numerics", "mode=xla"]),
    ],
)
def test_the_command_says_one_sentence_ends_with_2_and_leaves_nothing(run_cli, tmp_path, arguments, names):
    assert_one_sentence(run_cli("train", *arguments, cwd=tmp_path), 2, *names)
    assert list(tmp_path.rglob("*")) == []


# --- environments -------------------------------------------------------------------------------------------------


class Fine(gym.Env):
    """What the broken ones below are made from; its actions start below 0."""

    observation_space: gym.Space = Box(-1, 1, (3,), np.float32)
    action_space: gym.Space = Discrete(4, start=-2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), float(action), False, False, {}


class NoMake(Fine):
    def __init__(self):
        raise RuntimeError("no display")


class NoActions(Fine):
    def __init__(self):
        self.action_space = Discrete(1)
        self.action_space.n = np.int64(0)


class ZeroActions(Fine):
    def __init__(self):
        self.action_space = Discrete(0)


class Continuous(Fine):
    action_space = Box(-1, 1, (2,), np.float32)


class Several(Fine):
    action_space = MultiDiscrete([[2, 3], [4, 5]])  # its text has two lines


class Endless(Fine):
    observation_space = Dict({"a": Sequence(Discrete(3))})


class Spaceless(Fine):
    observation_space = None


class Empty(Fine):
    observation_space = Box(-1, 1, (2, 0), np.float32)


class NanAtReset(Fine):
    def reset(self, *, seed=None, options=None):
        return np.array([0, np.nan, 0], np.float32), {}


class Infinite(Fine):
    observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def reset(self, *, seed=None, options=None):
        return np.array([0, np.inf, 0]), {}


class Large(Fine):
    observation_space = Box(-1e300, 1e300, (3,), np.float64)

    def reset(self, *, seed=None, options=None):
        return np.full(3, 1e300), {}


class RaisesAtReset(Fine):
    def reset(self, *, seed=None, options=None):
        raise ValueError("first line.\nsecond line")


class OldReset(Fine):
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32)


class Broadcast(Fine):
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}


BROKEN = Fine.__subclasses__()


@pytest.fixture
def registered():
    for cls in (Fine, *BROKEN):
        gym.register(f"Bad/{cls.__name__}-v0", cls)
    yield
    for cls in (Fine, *BROKEN):
        gym.registry.pop(f"Bad/{cls.__name__}-v0")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("NoMake", "cannot be made: RuntimeError: no display (test_bad_input.py, line "),
        ("NoActions", "has 0 actions; 1 to 2147483647 are allowed"),
        ("ZeroActions", "cannot be made: ValueError: n (counts) have to be positive"),
        ("Continuous", "only a Discrete action space is allowed"),
        ("Several", "only a Discrete action space is allowed"),
        ("Endless", "only a Box, or what can be flattened, is allowed"),
        ("Spaceless", "cannot be made"),
        ("Empty", "observations of shape (2, 0), which hold nothing to learn from"),
        (
            "NanAtReset",
            "cannot be started: ValueError: its first observations are NaN or infinite, or too large for float32.",
        ),
        ("Infinite", "its first observations are NaN or infinite, or too large for float32."),
        ("Large", "its first observations are NaN or infinite, or too large for float32."),
        ("RaisesAtReset", "cannot be started: ValueError: first line (test_bad_input.py, line "),
        ("OldReset", "cannot be started: ValueError: "),
        ("Broadcast", "it gave an observation of shape (1,), and its space says (3,)."),
        ("Typo", "There is no environment 'Bad/Typo-v0' (env.id)"),
    ],
)
def test_a_broken_environment_is_one_sentence_that_names_env_id(registered, name, sentence):
    with pytest.raises(UserError) as error, make_vec_env(EnvConfig(id=f"Bad/{name}-v0", num_envs=2), seed=0) as envs:
        envs.reset()
    text = str(error.value)
    assert sentence in text
    assert "env.id" in text and f"Bad/{name}-v0" in text
    assert len(text.splitlines()) == 1 and len(text) < 500


def test_every_broken_environment_is_tried():
    tried = test_a_broken_environment_is_one_sentence_that_names_env_id.pytestmark[0].args[1]
    assert {cls.__name__ for cls in BROKEN} == {name for name, _ in tried} - {"Typo"}


RIGHT = np.zeros(3, np.float32)


class LaterBad(Fine):
    """Its first episode has one step; what is wrong with it comes then."""

    def __init__(self, *, step=(RIGHT, 0.0, True, False, {}), reset=(RIGHT, {})):
        self.answers = iter([(RIGHT, {}), reset])
        self.answer = step

    def reset(self, *, seed=None, options=None):
        return next(self.answers)

    def step(self, action):
        return self.answer


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"step": (np.zeros(3), 0.0, True, {})}, "not enough values to unpack"),
        ({"step": (np.zeros(3), None, True, False, {})}, "float"),
        ({"step": (np.zeros(2), 0.0, True, False, {})}, r"shape \(2,\), and its space says \(3,\)"),
        ({"step": (np.zeros(1), 0.0, True, False, {})}, r"shape \(1,\), and its space says \(3,\)"),
        ({"reset": (np.zeros(1), {})}, r"shape \(1,\), and its space says \(3,\)"),
    ],
)
def test_what_goes_wrong_later_names_the_environment_and_is_there_as_it_was_for_the_loop_to_keep(wrong, error):
    gym.registry.pop("Bad/Later-v0", None)
    gym.register("Bad/Later-v0", LaterBad, kwargs=wrong)
    with make_vec_env(EnvConfig(id="Bad/Later-v0", num_envs=1), seed=0) as envs:
        envs.reset()
        with pytest.raises(EnvCrashError, match=r"^The environment env\.id=Bad/Later-v0 failed: ") as told:
            envs.step(np.zeros(1, np.int32))
    with pytest.raises((ValueError, TypeError), match=error):
        raise told.value.cause


def test_actions_are_those_of_the_space_wherever_it_starts(registered):
    with make_vec_env(EnvConfig(id="Bad/Fine-v0", num_envs=4), seed=0) as envs:
        envs.reset()
        assert envs.num_actions == 4
        assert envs.step(np.arange(4)).rewards.tolist() == [-2, -1, 0, 1]


@pytest.mark.parametrize("name", ["NoActions", "Continuous", "Empty", "NanAtReset", "RaisesAtReset", "Pendulum"])
def test_a_broken_environment_leaves_no_run_folder(registered, run_cli, tmp_path, name):
    done = run_cli("train", "--env", f"Bad/{name}-v0", "--config", "atari", cwd=tmp_path)
    assert_one_sentence(done, 2, "env.id")
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "content", ["1 / 0", "import no_such_module", "raise SystemExit('stop')", "def f(:", "raise Exception"]
)
def test_a_module_that_does_not_run_is_one_sentence(tmp_path, monkeypatch, content):
    (tmp_path / "bad_module.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as error:
        make_vec_env(EnvConfig(id="bad_module:Own-v0"), seed=0)
    text = str(error.value)
    assert "env.id" in text and "bad_module:Own-v0" in text and "cannot be imported: " in text
    assert "bad_module.py, line 1" in text and "frozen" not in text
    assert len(text.splitlines()) == 1 and len(text) < 500
