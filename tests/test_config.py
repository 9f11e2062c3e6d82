"""Configuration: precedence, presets, files, and one clear sentence for every mistake."""

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
import yaml

from a2c.algorithms.section import AlgorithmSection
from a2c.algorithms.sections import SECTIONS
from a2c.config import (
    SCHEMA,
    Config,
    UserError,
    all_keys,
    dotted,
    dump_config,
    env_slug,
    load_config,
    parse_assignment,
    preset_names,
)
from a2c.config.explain import explained
from a2c.messages import MOST_MISTAKES

STABLE_KEYS = """seed total_env_steps env.id env.backend env.num_envs env.sticky_action_probability
env.cut_on_life_loss algorithm.rollout_length algorithm.gamma algorithm.gae_lambda algorithm.entropy_coef
algorithm.value_loss_coef optimizer.name optimizer.learning_rate model.name runtime.mode runtime.precision
logging.every_updates checkpoint.every_updates checkpoint.keep""".split()


def test_the_defaults_are_the_classic_recipe():
    config, source = load_config(config="atari")
    assert source == "atari"
    assert config == Config()
    assert (config.env.num_envs, config.algorithm.rollout_length) == (16, 5)
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("rmsprop", 7e-4)
    assert (config.optimizer.rho, config.optimizer.epsilon, config.optimizer.max_grad_norm) == (0.99, 1e-5, 0.5)
    assert (config.algorithm.entropy_coef, config.algorithm.value_loss_coef) == (0.01, 0.25)
    assert (config.algorithm.gamma, config.algorithm.gae_lambda) == (0.99, 1.0)
    assert config.env.sticky_action_probability == 0.0
    assert config.env.cut_on_life_loss


def test_keys_that_scripts_rely_on_are_there():
    assert set(STABLE_KEYS) <= set(all_keys())


@pytest.mark.parametrize("env_id", ["Pong", "pong", "ALE/Pong-v5"])
def test_a_game_with_a_preset_of_its_own_name_gets_it(env_id):
    config, source = load_config(env_id=env_id)
    assert source == "pong"
    assert config.env.id == "Pong"


def test_a_game_without_one_gets_the_recipe_of_a2c_and_a_toy_the_classic_one_and_config_wins_over_the_games_own():
    assert load_config(env_id="Qbert")[1] == "a2c"
    assert load_config(env_id="ALE/Qbert-v5", overrides={"algorithm.name": "a2c"})[1] == "a2c"
    assert load_config(env_id="Bandit")[1] == "atari"
    config, source = load_config(env_id="Pong", config="atari")
    assert source == "atari"
    assert config.env.num_envs == 16


@pytest.mark.parametrize(
    ("env_id", "algorithm", "preset"),
    [
        ("Qbert", "ppo", "ppo-few-actions"),  # 6
        ("ALE/Freeway-v5", "ppo", "ppo-few-actions"),  # 3
        ("MsPacman", "ppo", "ppo-few-actions"),  # 9
        ("Amidar", "ppo", "ppo"),  # 10
        ("RoadRunner", "ppo", "ppo"),  # 18
        ("Qbert", "trpo", "trpo"),
        ("Enduro", "ppo", "enduro-ppo"),  # a preset of its own comes first
        ("Enduro", "a2c", "enduro"),
        ("BeamRider", "a2c", "beam_rider"),
        ("Breakout", "a2c", "breakout"),
        ("RoadRunner", "a2c", "road_runner"),
        ("Seaquest", "ppo", "seaquest-ppo"),
        ("BeamRider-v4", "ppo", "beam_rider-ppo"),
        ("Pong", "ppo", "pong-ppo"),
        ("ALE/Breakout-v5", "ppo", "breakout-ppo"),
        ("Catch", "ppo", "catch-ppo"),
        ("Bandit", "ppo", "vector-ppo"),  # whose network fits its observations
        ("Chain", "sac", "vector-sac"),
    ],
)
def test_an_environment_gets_the_algorithms_preset_for_its_kind(env_id, algorithm, preset):
    assert load_config(env_id=env_id, overrides={"algorithm.name": algorithm})[1] == preset


def test_a_wrong_value_is_blamed_on_the_file_only_if_it_stands_there(tmp_path):
    with pytest.raises(UserError, match=r"^the options given: algorithm\.gamma=3 is not allowed"):
        load_config(env_id="Catch", assignments=["algorithm.gamma=3"])
    (tmp_path / "mine.yaml").write_text("seed: -1")
    with pytest.raises(UserError, match=f"^{tmp_path}/mine.yaml: seed=-1 is not allowed"):
        load_config(config=tmp_path / "mine.yaml", assignments=["algorithm.gamma=0.9"])


@pytest.mark.parametrize(
    ("preset", "difference"),
    [
        ("enduro", {"env.id": "Enduro", "algorithm.noise_hold": 16}),
        ("beam_rider", {"env.id": "BeamRider", "algorithm.gamma": 0.999, "algorithm.entropy_coef": 0.005}),
        ("breakout", {"env.id": "Breakout", "optimizer.schedule": "cooldown"}),
        (
            "road_runner",
            {
                "env.id": "RoadRunner",
                "algorithm.entropy_coef": 0.01,
                "algorithm.normalize_advantages": False,
            },
        ),
    ],
)
def test_a_games_own_preset_differs_from_a2c_by_what_its_comment_names(preset, difference):
    own, a2c = (dotted(dump_config(load_config(config=name)[0])) for name in (preset, "a2c"))
    assert {key: value for key, value in own.items() if value != a2c[key]} == difference


@pytest.mark.parametrize(
    ("arguments", "sticky", "sentence"),
    [
        ({"env_id": "ALE/Pong-v5"}, 0.25, "0.25 and env.frame_skip=4."),
        ({"env_id": "PongNoFrameskip-v4"}, 0.0, "0.0 and env.frame_skip=4; in Gymnasium: frames 1."),
        ({"env_id": "Pong-v0"}, 0.25, "0.25 and env.frame_skip=4; in Gymnasium: frames 2 to 4, drawn at random."),
        ({"env_id": "ALE/Pong-v5", "overrides": {"env.sticky_action_probability": 0.0}}, 0.0, "sticky actions 0.25."),
        ({"assignments": ["env.id=ALE/Pong-v5"]}, 0.25, "0.25 and env.frame_skip=4."),
        ({"env_id": "Pong-v4", "config": "machado"}, 0.25, "sticky actions 0.0, frames 2 to 4, drawn at random."),
        ({"config": "FILE"}, 0.25, "0.25 and env.frame_skip=4."),
        ({"config": "FILE", "env_id": "Pong"}, 0.0, ""),
        ({"config": "RUN"}, 0.0, ""),
    ],
)
def test_what_an_id_of_gymnasium_means_gives_way_to_what_is_named_and_is_told(tmp_path, arguments, sticky, sentence):
    files = {"FILE": tmp_path / "mine.yaml", "RUN": tmp_path / "config.yaml"}
    files["FILE"].write_text("env: {id: ALE/Pong-v5}")
    files["RUN"].write_text(f"schema: {SCHEMA}\nenv: {{id: ALE/Pong-v5}}")  # of a run that took nothing from its id
    given = {**arguments, "config": files.get(arguments.get("config"), arguments.get("config"))}
    told: list[str] = []
    config, _ = load_config(**given, tell=told.append)
    assert (config.env.id, config.env.sticky_action_probability) == ("Pong", sticky)
    assert len(told) == bool(sentence)
    assert all(text.endswith(sentence) and " is Pong with env.sticky_action" in text for text in told)


@pytest.mark.parametrize(
    ("algorithm", "preset"),
    [(None, "vector"), ("a2c", "vector"), ("ppo", "vector-ppo"), ("trpo", "vector-trpo"), ("a3c", "vector-a3c")],
)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "mine:Own-v0"])
def test_what_is_no_game_gets_the_preset_of_vectors(env_id, algorithm, preset):
    config, source = load_config(env_id=env_id, overrides={"algorithm.name": algorithm})
    assert (source, config.env.id) == (preset, env_id)


def test_a_flag_of_0_wins_over_the_file_too(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 7\n")
    assert load_config(config=file, overrides={"seed": 0})[0].seed == 0
    assert load_config(config=file, overrides={"seed": None})[0].seed == 7


def test_set_wins_over_flags_flags_over_the_preset():
    config, _ = load_config(
        env_id="Pong", overrides={"seed": 3, "total_env_steps": 900}, assignments=["seed=4", "env.num_envs=2"]
    )
    assert (config.seed, config.total_env_steps, config.env.num_envs) == (4, 900, 2)
    assert config.optimizer.name == "adam"


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_holds_only_what_differs(name):
    config, _ = load_config(config=name)
    defaults = {**dump_config(Config()), "algorithm": type(config.algorithm)().model_dump()}
    for section, values in (yaml.safe_load(Path(f"configs/{name}.yaml").read_text()) or {}).items():
        for key, value in values.items() if isinstance(values, dict) else [(None, values)]:
            default = defaults[section] if key is None else defaults[section][key]
            assert value != default or key in ("id", "name"), f"{section}.{key} is the default"
    assert config.total_updates > 0


def test_a_runs_config_file_can_be_used_again(tmp_path):
    config, _ = load_config(config="pong", assignments=["seed=7"])
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**dump_config(config), "provenance": {"a2c": "0"}}))
    assert load_config(config=file)[0] == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1.0e-3", 1e-3),
        ("1_0e-4", 1e-3),
        ("0.5", 0.5),
        (" 0.25 ", 0.25),
    ],
)
def test_numbers_in_every_spelling(text, value):
    assert (
        load_config(config="atari", assignments=[f"optimizer.learning_rate={text}"])[0].optimizer.learning_rate == value
    )


@pytest.mark.parametrize(
    ("text", "seed"), [("10", 10), ("010", 10), ("0x10", 16), ("1_000", 1000), ("3.0", 3), ("0", 0)]
)
def test_whole_numbers_in_every_spelling_and_no_octal(text, seed):
    assert load_config(config="atari", assignments=[f"seed={text}"])[0].seed == seed


def test_lists_and_booleans_on_the_command_line():
    config, _ = load_config(
        config="atari", assignments=["model.hidden_sizes=[8, 9]", "env.fire_reset=false", "model.conv_layers=[[1,2,3]]"]
    )
    assert config.model.hidden_sizes == (8, 9)
    assert config.env.fire_reset is False
    assert config.model.conv_layers == ((1, 2, 3),)
    assert load_config(config="pong", assignments=["model.conv_layers=null"])[0].model.conv_layers is None


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("optimizer.lerning_rate=1", "no key 'optimizer.lerning_rate'. Did you mean optimizer.learning_rate"),
        ("lr=1", "no key 'lr'"),
        ("env=3", "env is a section; set one of its keys, such as env.id and env.backend"),
        ("env.num_envs=0", "env.num_envs=0 is not allowed: it should be a whole number from 1 to 4096"),
        ("env.num_envs=two", "env.num_envs='two' is not allowed"),
        ("env.num_envs=1.5", "env.num_envs=1.5"),
        ("env.num_envs=true", "env.num_envs=true is not allowed: it should be a whole number"),
        ("env.num_envs=", "env.num_envs"),
        ("env.id=null", "env.id=null is not allowed: it should be a text"),
        (
            "env.id=a\u202eb",
            r"env.id='a\u202eb' is not allowed: it should be a text of at most 200 printable characters",
        ),
        ("env.fire_reset=2", "env.fire_reset=2 is not allowed: it should be true or false"),
        ("seed=-1", "seed=-1 is not allowed: it should be a whole number from 0 to 9223372036854775807"),
        ("seed=9223372036854775808", "from 0 to 9223372036854775807"),
        (f"seed=0x{'f' * 6000}", "cannot be read as YAML"),  # Python does not write it in decimals
        ("seed=1:30", "seed='1:30'"),
        ("seed=!!int ''", "cannot be read as YAML"),
        ("algorithm.gamma=1.5", "a finite number from 0 to 1."),
        ("algorithm.gamma=true", "algorithm.gamma=true is not allowed"),
        ("algorithm.value_loss_coef=.inf", "a finite number from 0 to 1000000."),
        ("algorithm.entropy_coef=1e39", "a finite number from 0 to 1000000."),
        ("optimizer.beta_1=1", "a finite number from 0 to below 1"),
        ("optimizer.learning_rate=.nan", "a finite number above 0 to 1000"),
        ("optimizer.learning_rate=inf", "finite"),
        ("model.hidden_sizes=[64, true]", "model.hidden_sizes=[64, true] is not allowed"),
        ("model.hidden_sizes=64", "a list of at most 64, each a whole number from 1 to 65536"),
        (f"model.hidden_sizes={[8] * 65}", "a list of at most 64"),
        ("model.conv_layers=[[8, 4]]", "it should be null or a list of at most 64, each a list of 3, each a whole"),
        ("runtime.mode=fast", "it should be graph, eager or xla"),
        ("runtime.mode=Graph", "it should be graph, eager or xla. Did you mean graph?"),
        ("model.name=natur", "mlp or module:builder. Did you mean nature?"),
        ("model.name=resnet", "it should be auto, nature, small, impala, mlp or module:builder"),
        ("seed", "section.key=value"),
        ("=3", "section.key=value"),
        ("seed=[", "cannot be read as YAML"),
    ],
)
def test_a_wrong_assignment_is_one_sentence_that_names_it(assignment, sentence):
    with pytest.raises(UserError) as error:
        load_config(config="atari", assignments=[assignment])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_xla_is_never_exact_and_says_so():
    assert load_config(config="atari", overrides={"runtime.mode": "xla"})[0].runtime.numerics == "auto"
    with pytest.raises(UserError, match="exact is impossible with mode=xla"):
        load_config(config="atari", assignments=["runtime.mode=xla", "runtime.numerics=exact"])


def test_a_rollout_longer_than_the_budget_is_refused_with_its_size():
    with pytest.raises(UserError) as error:
        load_config(config="pong", overrides={"total_env_steps": 511})
    assert "total_env_steps=511 is less than one rollout of 512 steps" in str(error.value)
    assert "(algorithm.rollout_length=64 x env.num_envs=8); give at least 512" in str(error.value)
    assert load_config(config="pong", overrides={"total_env_steps": 512})[0].total_updates == 1


def test_a_single_advantage_cannot_be_normalised():
    one = ["env.num_envs=1", "algorithm.rollout_length=1"]
    load_config(config="atari", assignments=one)
    with pytest.raises(UserError, match="normalize_advantages=true needs a batch of at least 2 steps"):
        load_config(config="atari", assignments=[*one, "algorithm.normalize_advantages=true"])
    trpo = ["algorithm.value_minibatches=1", *one]
    with pytest.raises(UserError, match="normalize_advantages=true needs a batch of at least 2 steps"):
        load_config(config="trpo", assignments=trpo)
    load_config(config="trpo", assignments=[*trpo, "algorithm.normalize_advantages=false"])


def test_the_name_of_a_file_may_be_too_long():
    with pytest.raises(UserError, match=r"^--config 'a+.* cannot be read: File name too long\.$"):
        load_config(config="a" * 300)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (3, "is of schema 3, this version of a2c reads schema 2; update a2c"),
        (1, "an Atari environment is seeded after env.reseed_after steps"),
        (1, "remove the line `schema: 1` to use it with today's meaning"),
        (0, "schema=0 is not allowed: it should be a whole number, 2 today"),
        (True, "schema=true is not allowed"),
        (2.0, "schema=2.0 is not allowed"),
        (None, "schema=null is not allowed"),
        ("two", "schema='two' is not allowed"),
    ],
)
def test_a_file_of_another_schema_is_refused(tmp_path, schema, sentence):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"schema": schema, "seed": 7}))
    with pytest.raises(UserError) as error:
        load_config(config=file)
    assert sentence in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["schema: 2\n", ""])
def test_a_file_of_todays_schema_or_without_one_is_read(tmp_path, line):
    file = tmp_path / "config.yaml"
    file.write_text(f"{line}seed: 7\n")
    assert load_config(config=file)[0].seed == 7
    assert SCHEMA == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a: [", "not valid YAML at line"),
        (b"- 1", "must hold sections"),
        (b"3: 4", "no key '3'"),
        (b"sed: 3", "no key 'sed'. Did you mean seed"),
        (b"env: 3", "env=3 is not allowed: it should be a section with keys such as env.id and env.backend"),
        (b"model: null", "model=null is not allowed: it should be a section"),
        (b"env: [1]", "env=[1] is not allowed: it should be a section"),
        (b"env: {3: 4}", "no key 'env.3'"),
        (b"seed: 1\nseed: 2", "not valid YAML at line 2: 'seed is given twice'"),
        (b"env: {id: Pong}\nseed: 1\nenv: {num_envs: 2}", "at line 3: 'env is given twice'"),
        (b"seed: !!int ''", "not valid YAML"),  # IndexError in PyYAML
        (b"seed: !!bool x", "not valid YAML"),  # KeyError
        (b"[" * 3000, "not valid YAML"),  # RecursionError
        (b"\xff\xfe\x00", "cannot be read"),
        (b"seed: !!python/object/apply:os.system ['true']", "not valid YAML"),
        (b"env:\n  id: Pong\n  nmu_envs: 3", "no key 'env.nmu_envs'"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, content, sentence):
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError) as error:
        load_config(config=file)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_all_mistakes_of_a_file_are_told_at_once_each_a_single_time(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("seed: x\nenv: {idd: 4}\noptimizer: {learning_rate: -1}\nmodel: {conv_layers: [[1, 2], 3]}")
    with pytest.raises(UserError) as error:
        load_config(config=file)
    for wrong in ("seed='x'", "'env.idd'", "optimizer.learning_rate=-1", "model.conv_layers=[[1, 2], 3]"):
        assert str(error.value).count(wrong) == 1
    file.write_text("optimizer: [1]")
    with pytest.raises(UserError) as error:
        load_config(config=file, assignments=["optimizer.learning_rate=0.1", "seed=x"])
    assert str(error.value).count("optimizer=[1]") == 1
    assert f"{file}: optimizer=[1]" in str(error.value)
    file.write_text("".join(f"x{i}: 0\n" for i in range(MOST_MISTAKES + 3)))
    with pytest.raises(UserError, match=r"\(and 3 more\)$"):
        load_config(config=file)


def test_all_mistakes_of_assignments_are_told_at_once():
    wrong = ["nothing", "optimizer.lr=1", "seeds=2", "env=3", "algorithm.gamma=2", "optimizer.rho=0.5"]
    with pytest.raises(UserError) as error:
        load_config(config="catch", assignments=wrong)
    told = str(error.value)
    places = [
        told.index(text) for text in ("--set 'nothing' is", "'optimizer.lr'", "'seeds'", "env is a", "gamma=2 is")
    ]
    assert places == sorted(places)
    assert "rho" not in told
    assert told.count("`a2c config` lists all keys.") == 1
    with pytest.raises(UserError, match=r"^There is no key 'k0'\. .*\(and 3 more\)$"):
        load_config(assignments=[f"k{i}=0" for i in range(MOST_MISTAKES + 3)])


def test_what_a_merge_brings_may_be_overridden(tmp_path):
    (tmp_path / "c.yaml").write_text("env: {<<: {num_envs: 3, id: Pong}, num_envs: 4}")
    assert load_config(config=tmp_path / "c.yaml")[0].env.num_envs == 4


def test_a_few_lines_that_hold_more_than_memory_are_refused_at_once(tmp_path):
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in pairwise("abcdefghij")]
    (tmp_path / "c.yaml").write_text("\n".join([*lines, "env: {id: *j}"]))
    with pytest.raises(UserError) as error:
        load_config(config=tmp_path / "c.yaml")
    assert "it holds more than 20,000 values and letters" in str(error.value)
    assert len(str(error.value)) < 500


def test_a_missing_preset_names_the_nearest(tmp_path):
    with pytest.raises(UserError, match="Did you mean pong"):
        load_config(config="pongg")
    with pytest.raises(UserError, match="There is no preset or file ''"):
        load_config(config="")
    with pytest.raises(UserError, match=r"is a folder; name a YAML file\.$"):
        load_config(config=tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(
        UserError, match=r"name a YAML file such as .*/config\.yaml, or resume the run with `a2c resume"
    ):
        load_config(config=tmp_path)
    (tmp_path / "nowhere.yaml").symlink_to("gone.yaml")
    with pytest.raises(UserError, match="is a link that leads nowhere"):
        load_config(config=tmp_path / "nowhere.yaml")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is not a regular file"):
        load_config(config=tmp_path / "pipe")


@pytest.mark.parametrize(
    ("env_id", "slug"),
    [
        ("ALE/SpaceInvaders-v5", "space_invaders"),
        ("Pong", "pong"),
        ("my.module:Own-v0", "own"),
        ("CartPole-v1", "cart_pole"),
        ("../../etc/passwd", "passwd"),
    ],
)
def test_slugs_are_safe_folder_names(env_id, slug):
    assert env_slug(env_id) == slug


def test_a_config_is_frozen():
    with pytest.raises(Exception, match="frozen"):
        Config().seed = 3


def test_total_updates_cover_the_steps():
    config, _ = load_config(config="atari", overrides={"total_env_steps": 81})
    assert config.total_updates == 2


def test_an_empty_value_is_not_a_number():
    assert parse_assignment("a=") == ("a", "")


def test_a_value_is_read_as_yaml():
    values = {"'nature'": "nature", '"a: b"': "a: b", "1e-3": "1e-3", "[1, 2]": [1, 2], "true": True}
    assert {text: parse_assignment(f"model.name={text}")[1] for text in values} == values


def test_a_wrong_algorithm_in_a_file_is_the_files_mistake(tmp_path):
    (tmp_path / "mine.yaml").write_text("algorithm: {name: 7}")
    with pytest.raises(UserError, match=r"mine\.yaml: algorithm\.name=7 is not allowed"):
        load_config(config=tmp_path / "mine.yaml", env_id="Catch")


@pytest.mark.parametrize("only_changed", [False, True])
@pytest.mark.parametrize("preset", preset_names())
def test_what_config_prints_is_the_same_configuration(tmp_path, preset, only_changed):
    config, _ = load_config(config=preset)
    file = tmp_path / "mine.yaml"
    file.write_text(explained(config, only_changed=only_changed))
    assert load_config(config=file)[0] == config
    assert len(file.read_text()) < 6_000 or not only_changed


@pytest.mark.parametrize("name", SECTIONS)
def test_every_key_is_explained(name):
    """A meaning, what is allowed and the default, above each."""
    config, _ = load_config(config="atari", overrides={"algorithm.name": name, "model.separate_value": True})
    lines = explained(config).splitlines()
    keys = [line.partition(":")[0].strip() for line in lines if "#" not in line and not line.endswith(":")]
    assert len(keys) == len(all_keys(SECTIONS[name]))
    text = " ".join(line.strip(" #") for line in lines)
    assert len(re.findall(r"[A-Za-z0-9\])]\. Allowed: [^.]", text)) == len(keys) == text.count(" Default: ")


def test_config_prints_what_differs(run_cli):
    found = run_cli("config", "--env", "Pong", "--algorithm", "ppo", "--set", "seed=3", "--diff")
    values = yaml.safe_load(found.stdout)
    assert values["seed"] == 3
    assert values["algorithm"]["name"] == "ppo"
    assert "gamma" not in values["algorithm"]
    assert found.returncode == 0
    assert run_cli("config", "--env", "Pongo").returncode == 2


class OwnSection(AlgorithmSection):
    """With kinds of settings that no section here has."""

    IMPLEMENTATION = "mine:Mine"
    name: Literal["mine"] = "mine"
    text: str
    sizes: tuple[int, ...] = (1,)
    pair: dict[str, int] | None = None


def test_a_users_own_settings_are_explained_as_far_as_they_go():
    text = explained(Config(algorithm=OwnSection(text="x")))
    assert "# Allowed: a text.\n  text: x\n" in text
    assert "sizes: [1]" in text
