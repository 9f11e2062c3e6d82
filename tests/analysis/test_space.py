"""The space of a search: its files, the default of each algorithm, and what is not allowed."""

import random

import pytest

from a2c.algorithms.sections import SECTIONS
from a2c.analysis.space import Choices, Range, contains, read_space, rounded, with_settings
from a2c.config import UserError, dotted, dump_config, load_config

PPO = load_config(config="catch-ppo")[0]


def space_of(tmp_path, text, config=PPO):
    file = tmp_path / "space.yaml"
    file.write_text(text)
    return read_space(file, config)


def test_a_file_may_hold_ranges_steps_and_choices(tmp_path):
    space = space_of(
        tmp_path,
        """
        optimizer.learning_rate: {low: 1e-4, high: 3e-3, log: true}
        algorithm.entropy_coef: {low: 0, high: 0.02, step: 1e-3}
        algorithm.num_epochs: {low: 2, high: 8, step: 2}
        env.num_envs: {choices: [8, 16]}
        optimizer.name: [adam, rmsprop]
        model.conv_layers: [[[16, 4, 2], [32, 4, 2]], [[8, 4, 2]]]
        algorithm.target_kl: [null, 0.02]
        """,
    )
    assert space == {
        "optimizer.learning_rate": Range(1e-4, 3e-3, log=True),
        "algorithm.entropy_coef": Range(0.0, 0.02, step=0.001),
        "algorithm.num_epochs": Range(2, 8, step=2, whole=True),
        "env.num_envs": Choices((8, 16)),
        "optimizer.name": Choices(("adam", "rmsprop")),
        "model.conv_layers": Choices(([[16, 4, 2], [32, 4, 2]], [[8, 4, 2]])),
        "algorithm.target_kl": Choices((None, 0.02)),
    }


def test_a_value_may_lie_in_a_dimension_or_not():
    assert [contains(Range(1, 9, step=2, whole=True), value) for value in (0, 1, 4, 9, 11, None)] == [
        *(False, True, False, True, False, False)
    ]
    assert [contains(Range(0.1, 0.3, step=0.1), value) for value in (0.1, 0.2, 0.25, 0.3)] == [True, True, False, True]
    assert [contains(Range(0.1, 0.3), value) for value in (0.05, 0.25)] == [False, True]
    assert [contains(Choices((None, [1, 2])), value) for value in (None, [1, 2], [1])] == [True, True, False]


@pytest.mark.parametrize("env", ["Catch", "Pong", "CartPole-v1"])
@pytest.mark.parametrize("algorithm", SECTIONS)
def test_the_default_spaces_hold_nothing_that_contradicts_itself(algorithm, env):
    config = load_config(env_id=env, overrides={"algorithm.name": algorithm})[0]
    space = read_space(None, config)
    assert space.keys() == config.algorithm.SPACE.keys()
    defaults = dotted(dump_config(config))
    corners = {}
    for key, dimension in space.items():
        if isinstance(dimension, Range):
            corners[key] = (dimension.low, dimension.high)
        else:
            corners[key] = dimension.values
    assert with_settings(config, {key: defaults[key] for key in space}) == config
    drawn = random.Random(0)
    for _ in range(50):
        settings = {key: drawn.choice(values) for key, values in corners.items()}
        changed = with_settings(config, settings)
        assert {key: dotted(dump_config(changed))[key] for key in space} == settings


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(UserError, match=r"rollout_length=32 cannot be cut into algorithm.num_minibatches=5"):
        with_settings(PPO, {"algorithm.num_minibatches": 5})


def test_numbers_have_four_digits_but_stay_in_the_range_and_leave_the_default_alone():
    rates = Range(1.2344e-4, 1.0)
    assert rounded(rates, 0.0123456789, 0.5) == 0.01235
    assert rounded(rates, 1.23441e-4, 0.5) == 1.2344e-4
    assert rounded(rates, 0.123456789, 0.123456789) == 0.123456789
    assert rounded(Range(1, 8, whole=True), 7, 3) == 7
    assert rounded(Choices((0.123456, 2)), 0.123456, 2) == 0.123456


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no key to vary, such as optimizer.learning_rate: {low: 1e-4"),
        ("[1, 2]", "must hold sections and keys"),
        ("lr: [1, 2]", "There is no key 'lr'. Did you mean optimizer.learning_rate?"),
        ("5: [1, 2]", "There is no key '5'."),
        ("optimizer: {learning_rate: [1, 2]}", "optimizer is a section; set one of its keys"),
        ("algorithm.max_kl: [0.1, 0.2]", "There is no key 'algorithm.max_kl' of ppo; it is one of trpo."),
        ("seed: [0, 1]", "seed cannot be searched for"),
        ("total_env_steps: [10, 20]", "total_env_steps cannot be searched for"),
        ("runtime.threads: [1, 2]", "runtime.threads cannot be searched for"),
        ("optimizer.learning_rate: 0.1", "0.1 is not of the form {low: 1e-4"),
        ("optimizer.learning_rate: {low: 0.1}", "is not of the form"),
        ("optimizer.learning_rate: {low: 0.1, high: 0.2, log_scale: true}", "is not of the form"),
        ("optimizer.learning_rate: {low: 0.2, high: 0.1}", "low=0.2 must be less than high=0.1"),
        ("optimizer.learning_rate: {low: 0, high: 0.1}", "optimizer.learning_rate=0 is not allowed: it should be a"),
        ("optimizer.learning_rate: {low: 0.1, high: .inf}", "optimizer.learning_rate=inf is not allowed"),
        ("optimizer.learning_rate: {low: 0.1, high: 0.2, log: 3}", "log=3 is not allowed: it should be true or false"),
        ("algorithm.entropy_coef: {low: 0, high: 0.1, log: true}", "log=true needs a low above 0 and no step"),
        ("algorithm.num_epochs: {low: 1, high: 9, log: true, step: 2}", "log=true needs a low above 0 and no step"),
        ("algorithm.num_epochs: {low: 1, high: 9, step: 0.5}", "step=0.5 is not allowed: it should be a whole number"),
        ("algorithm.num_epochs: {low: 1, high: 9, step: 9}", "step=9 is not allowed"),
        ("algorithm.num_epochs: {low: 1, high: 9, step: 3}", "steps of 3 from low do not reach high"),
        (
            "optimizer.learning_rate: {low: 0.1, high: 0.2, step: 0.03333}",
            "steps of 0.03333 from low do not reach high",
        ),
        ("algorithm.num_epochs: {low: 1, high: 9, step: true}", "step=true is not allowed"),
        ("optimizer.learning_rate: {low: 0.1, high: 0.2, step: 0}", "step=0 is not allowed"),
        ("optimizer.learning_rate: {low: 0.1, high: 0.2, step: 1.0e-40}", "high - low, and at least 1e-07"),
        ("algorithm.num_epochs: {low: 1.5, high: 9}", "algorithm.num_epochs=1.5 is not allowed: it should be a whole"),
        ("algorithm.num_epochs: [2, two]", "algorithm.num_epochs='two' is not allowed: it should be a whole number"),
        ("algorithm.num_epochs: [2]", "needs two or more different choices, and has [2]"),
        ("algorithm.num_epochs: [2, 2]", "needs two or more different choices"),
        ("algorithm.normalize_advantages: {low: 0, high: 1}", "has no range, since it is no number; name its choices"),
        ("optimizer.name: [adam, sgd]", "optimizer.name='sgd' is not allowed: it should be rmsprop or adam"),
        ("optimizer.name: [adam, [rmsprop", "is not valid YAML"),
    ],
)
def test_a_mistake_in_a_file_is_named_in_one_sentence(tmp_path, text, said):
    with pytest.raises(UserError) as told:
        space_of(tmp_path, text)
    assert said in str(told.value)
    assert "space.yaml" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({}, "There is no default space for ppo; give one with --space FILE"),
        ([1], "ppo: the SPACE of its Section has to be a dict of keys: "),
    ],
)
def test_an_algorithm_of_ones_own_needs_a_space(monkeypatch, space, said):
    monkeypatch.setattr(type(PPO.algorithm), "SPACE", space)
    with pytest.raises(UserError, match=said):
        read_space(None, PPO)


def test_each_setting_changes_its_key_alone(tmp_path):
    before = dotted(dump_config(PPO))
    for key, value in {"algorithm.target_kl": 0.5, "env.num_envs": 4, "model.separate_value": True}.items():
        after = dotted(dump_config(with_settings(PPO, {key: value})))
        assert [name for name, each in after.items() if each != before[name]] == [key]
