"""Configuration: precedence, presets, files, and one clear sentence for every mistake."""

from pathlib import Path

import pytest
import yaml

from a2c.config import (
    Config,
    UserError,
    all_keys,
    dump_config,
    env_slug,
    load_config,
    parse_assignment,
    preset_names,
)

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
    assert config.env.id == env_id


def test_a_game_without_one_gets_the_classic_recipe_and_config_wins_over_the_games_own():
    assert load_config(env_id="Qbert")[1] == "atari"
    config, source = load_config(env_id="Pong", config="atari")
    assert source == "atari"
    assert config.env.num_envs == 16


def test_set_wins_over_flags_flags_over_the_preset():
    config, _ = load_config(
        env_id="Pong", overrides={"seed": 3, "total_env_steps": 9}, assignments=["seed=4", "env.num_envs=2"]
    )
    assert (config.seed, config.total_env_steps, config.env.num_envs) == (4, 9, 2)
    assert config.optimizer.name == "adam"


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_holds_only_what_differs(name):
    config, _ = load_config(config=name)
    defaults = dump_config(Config())
    for section, values in (yaml.safe_load(Path(f"configs/{name}.yaml").read_text()) or {}).items():
        for key, value in values.items() if isinstance(values, dict) else [(None, values)]:
            default = defaults[section] if key is None else defaults[section][key]
            assert value != default or key == "id", f"{section}.{key} is the default"
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
        ("0.5", 0.5),
        (" 0.25 ", 0.25),
    ],
)
def test_numbers_in_every_spelling(text, value):
    assert (
        load_config(config="atari", assignments=[f"optimizer.learning_rate={text}"])[0].optimizer.learning_rate == value
    )


def test_lists_and_booleans_on_the_command_line():
    config, _ = load_config(
        config="atari", assignments=["model.hidden_sizes=[8, 9]", "env.fire_reset=false", "model.conv_layers=[[1,2,3]]"]
    )
    assert config.model.hidden_sizes == (8, 9)
    assert config.env.fire_reset is False
    assert config.model.conv_layers == ((1, 2, 3),)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("optimizer.lerning_rate=1", "no key 'optimizer.lerning_rate'. Did you mean optimizer.learning_rate"),
        ("lr=1", "no key 'lr'"),
        ("env=3", "no key 'env'"),
        ("env.num_envs=0", "greater than or equal to 1"),
        ("env.num_envs=two", "valid integer"),
        ("env.num_envs=1.5", "env.num_envs=1.5"),
        ("env.num_envs=", "env.num_envs"),
        ("seed=-1", "greater than or equal to 0"),
        ("algorithm.gamma=1.5", "less than or equal to 1"),
        ("optimizer.learning_rate=.nan", "finite"),
        ("optimizer.learning_rate=inf", "finite"),
        ("runtime.mode=fast", "'graph', 'eager' or 'xla'"),
        ("model.name=resnet", "'auto', 'nature'"),
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


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a: [", "not valid YAML at line"),
        (b"- 1", "must hold sections"),
        (b"3: 4", "must hold sections"),
        (b"sed: 3", "no key 'sed'. Did you mean seed"),
        (b"env: 3", "env=3 is not allowed"),
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


def test_a_missing_preset_names_the_nearest(tmp_path):
    with pytest.raises(UserError, match="Did you mean pong"):
        load_config(config="pongg")
    with pytest.raises(UserError, match="is a folder"):
        load_config(config=tmp_path)


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
