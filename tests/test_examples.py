"""Files of examples/: code of users' own, which runs only if they name it."""

import functools
import re
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GRAPH, VECTORS, draw_nothing, make_rollout, observations, small_config

from a2c import evaluate, extensions
from a2c.algorithms.algorithm import build_algorithm, build_policy
from a2c.algorithms.gradient_step import Fit, GradientStep
from a2c.algorithms.off_policy import Transitions
from a2c.algorithms.section import Metric
from a2c.analysis.targets import ALGORITHMS, CONFIGURATIONS
from a2c.cli.judging import only_trusts
from a2c.config import CrashError, EnvConfig, UserError, build_config, load_config
from a2c.data.rollout import Rollout
from a2c.envs import make_vec_env
from a2c.run.incident import nonfinite_stage
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY = ["--env", "Catch", "--steps", 512, "--eager", "--quiet", "--set", "logging.trackers=[]"]
OWN = {
    "algorithm": ("reinforce", "Reinforce"),
    "replay": ("munchausen", "Munchausen"),
    "model": ("network", "build"),
    "wrapper": ("steady", "Steady"),
}


@pytest.fixture(autouse=True)
def nobody_has_named_anything(monkeypatch):
    forget(monkeypatch)
    yield
    forget(monkeypatch)


def imported(option):
    """What an example defines, as a user in its folder imports it."""
    sys.path.append(str(EXAMPLES))
    try:
        module, name = OWN[option]
        return getattr(__import__(module), name)
    finally:
        sys.path.remove(str(EXAMPLES))


def forget(monkeypatch):
    """As a new process, in which nothing was named."""
    monkeypatch.setenv(extensions.TRUSTED, "")
    monkeypatch.setattr(extensions, "_given", {})
    for module, _ in OWN.values():
        sys.modules.pop(module, None)


@pytest.mark.parametrize("option", ["algorithm", "model", pytest.param("wrapper", marks=pytest.mark.integration)])
def test_the_command_line_runs_it_where_it_is_named_and_nowhere_else(option, run_cli, run_dir, monkeypatch):
    name = ":".join(OWN[option])
    named = [f"--{option}", name]
    trained = run_cli("train", *TINY, *named, "--run-dir", run_dir, cwd=EXAMPLES)
    assert (trained.returncode, trained.stderr) == (0, "")

    for command in (["resume", run_dir], ["eval", run_dir], ["watch", run_dir], ["export", run_dir]):
        forget(monkeypatch)
        ended = run_cli(*command, cwd=EXAMPLES)
        assert ended.returncode == 2
        assert f"The {option} {name!r} is code of that module" in ended.stderr
        assert f"say so with --{option} {name}." in ended.stderr
        assert OWN[option][0] not in sys.modules

    resumed = run_cli("resume", run_dir, *named, "--steps", 1024, cwd=EXAMPLES)
    assert resumed.returncode == 0
    assert f"a2c eval {run_dir} --{option} {name}" in resumed.stdout
    assert find_checkpoint(run_dir).env_steps == 1024
    forget(monkeypatch)
    draw_nothing(monkeypatch)  # its words are looked at
    page = run_cli("report", run_dir, "--out", run_dir / "page.html", cwd=EXAMPLES)
    assert (page.returncode, OWN[option][0] in sys.modules) == (0, False)
    assert f"a2c eval {run_dir} --{option} {name}" in (run_dir / "page.html").read_text()
    played = run_cli("eval", run_dir, *named, "--episodes", 2, cwd=EXAMPLES)
    assert (played.returncode, played.stderr) == (0, "")
    assert "over 2 whole games" in played.stdout


@pytest.mark.integration
@pytest.mark.parametrize("option", ["algorithm", "model"])
def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(option, tmp_path):
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 1024})
    own = {option: imported(option)}
    whole = train(config, tmp_path / "whole", **own)
    first = config.model_copy(update={"total_env_steps": 512})
    train(first, tmp_path / "halves", **own)
    train(config, tmp_path / "halves", resume=True, **own)
    one, other = (find_checkpoint(tmp_path / name).group("model") for name in ("whole", "halves"))
    assert all(np.array_equal(one[key], other[key]) for key in one)
    assert whole.record is not None
    assert evaluate(tmp_path / "halves", episodes=2).episodes == 2  # this process knows what it means


def test_the_wrapper_charges_for_changes_that_the_score_does_not_see():
    extensions.register(imported("wrapper"))
    config = EnvConfig(id="Chain", num_envs=1, wrappers=[{"steady:Steady": {"cost": 0.25}}])
    with make_vec_env(config, seed=0) as envs:
        for _ in range(2):  # a new game forgets the last action of the one before
            envs.reset()
            steps = [envs.step(np.array([action])) for action in [0] * 16 + [1, 0, 0, 1] + [0] * 12]
            rewards = np.concatenate([step.rewards for step in steps])
            np.testing.assert_allclose(rewards[14:22], np.float32([0.1, 0.1, -0.25, -0.15, 0.1, -0.25, -0.15, 0.1]))
            assert steps[-1].episodes[0].episode_return == pytest.approx(3.0)  # 30 times left


def test_what_has_no_name_is_told():
    with pytest.raises(UserError, match=r"^functools\.partial.* has no name under which another process finds it"):
        extensions.register(functools.partial(print))


@pytest.mark.parametrize(("baseline", "mode"), [(True, "graph"), (True, "eager"), (False, "eager")])
def test_reinforce_learns_from_whole_episodes_alone(baseline, mode):
    """Two environments; the second one's last episode does not end in the rollout."""
    extensions.register(imported("algorithm"))
    values = small_config(env={"id": "Bandit", "num_envs": 2}, runtime={"mode": mode}).model_dump(mode="json")
    values["algorithm"] = {"name": "reinforce:Reinforce", "rollout_length": 3, "gamma": 0.5, "baseline": baseline}
    values["model"] = {"name": "mlp"}
    algorithm = build_algorithm(build_config(values, where="test"), VECTORS, 3)
    rng = np.random.default_rng(0)
    ends = np.array([[False, True], [False, False], [True, False]])
    rollout = Rollout(
        observations=observations(rng, VECTORS, 4, 2),
        actions=np.zeros((3, 2), np.int32),
        rewards=np.array([[1, 2], [4, 8], [16, 32]], np.float32),
        terminated=ends,
        truncated=np.zeros_like(ends),
        life_lost=np.zeros_like(ends),
        last_observations=observations(rng, VECTORS, 0),
        said={},
    )
    ((name, batch),) = algorithm.batches(rollout, 0)
    np.testing.assert_array_equal(batch.whole, [[1, 1], [1, 0], [1, 0]])
    np.testing.assert_array_equal(batch.returns, [[1 + 2 + 4, 2], [4 + 8, 0], [16, 0]])
    values["env"]["reward_clipping"] = "sign"
    ((_, clipped),) = build_algorithm(build_config(values, where="test"), VECTORS, 3).batches(rollout, 0)
    np.testing.assert_array_equal(clipped.returns, [[1 + 1 / 2 + 1 / 4, 1], [1 + 1 / 2, 0], [1, 0]])
    before = [v.numpy() for v in algorithm.variables["model"]]
    update = algorithm.update(rollout, 0)
    assert (name, update.gradient_steps, update.failed) == ("update", 1, None)
    assert set(update.metrics) == {metric.name for metric in algorithm.config.METRICS}
    moved = {v.path for v, old in zip(algorithm.variables["model"], before, strict=True) if (v.numpy() != old).any()}
    assert any("policy" in path for path in moved)
    assert any("value" in path for path in moved) == baseline


@pytest.mark.parametrize("n_step", [1, 2])
def test_munchausens_targets_are_those_of_the_paper(n_step):
    """Equation 4 in NumPy, with a target network that is far from the policy's, and both sides of the clip at -1."""
    extensions.register(imported("replay"))
    values = small_config(env={"id": "Bandit", "num_envs": 2}).model_dump(mode="json")
    values["algorithm"] = {"name": "munchausen:Munchausen", "learning_starts": 0, "n_step": n_step}
    values["algorithm"] |= {"temperature": 0.5, "bonus": 0.8}
    values["model"] = {"name": "mlp"}
    algorithm = build_algorithm(build_config(values, where="test"), VECTORS, 3)
    rng = np.random.default_rng(0)
    for variable in algorithm.target.trainable_variables:
        variable.assign(rng.normal(0, 1, variable.shape))
    n = 64
    ends = rng.random((n_step, n)) < 0.3  # by game over, after which nothing is valued
    batch = Transitions(
        observations=observations(rng, VECTORS, 1, n),
        actions=rng.integers(0, 3, (1, n), np.int32),
        rewards=rng.normal(0, 1, (n_step, n)).astype(np.float32),
        discounts=np.where(ends, 0, 0.9).astype(np.float32),
        ends=ends,
        next_observations=observations(rng, VECTORS, 1, n),
        weights=np.ones((1, n), np.float32),
    )
    now, then = (
        algorithm.target(x[0])[0].numpy().astype(np.float64) for x in (batch.observations, batch.next_observations)
    )
    log_policy = now / 0.5 - np.log(np.exp(now / 0.5).sum(-1, keepdims=True))
    scaled = 0.5 * log_policy[np.arange(n), batch.actions[0]]
    assert 0.1 < np.mean(scaled < -1) < 0.9
    wanted = 0.5 * np.log(np.exp(then / 0.5).sum(-1))
    for t in reversed(range(n_step)):
        bonus = 0.8 * np.maximum(scaled, -1) if t == 0 else 0
        wanted = batch.rewards[t] + bonus + 0.9 * wanted * ~ends[t]
    found = algorithm.targets(batch, lambda name, tensor: tensor)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("named", "env"), [("catch-dqn", None), (None, "Catch")])
def test_a_replay_of_ones_own_starts_from_the_preset_that_is_named_or_that_of_dqn(monkeypatch, named, env):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    config, source = load_config(config=named, env_id=env, overrides={"algorithm.name": "munchausen:Munchausen"})
    assert (source, config.env.id) == ("catch-dqn", "Catch")
    assert (config.algorithm.target_update, config.algorithm.bonus, config.optimizer.max_grad_norm) == (100, 0.9, 10)


def test_a_section_takes_the_presets_of_the_one_that_it_extends_and_its_choices_are_told(monkeypatch, tmp_path):
    (tmp_path / "sections.py").write_text(
        "from typing import Literal\n"
        "from a2c.algorithms.dqn import DQN\n"
        "from a2c.algorithms.ppo import PPO\n"
        "from a2c.algorithms.sections import DQNSection, PPOSection, ReplaySection\n"
        "class Mine(PPO):\n    class Section(PPOSection):\n        kind: Literal['aa', 2, True] = 'aa'\n"
        "class Again(Mine):\n    class Section(Mine.Section): ...\n"
        "class Replay(DQN):\n    class Section(ReplaySection):\n"
        "        TITLE, METRICS = 'another', DQNSection.METRICS\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = {"Mine": "pong-ppo", "Again": "pong-ppo", "Replay": "dqn"}
    found = {name: load_config(env_id="Pong", overrides={"algorithm.name": f"sections:{name}"})[1] for name in wanted}
    assert found == wanted
    with pytest.raises(UserError, match=r"it should be aa, 2 or true\. Did you mean aa\?"):
        load_config(overrides={"algorithm.name": "sections:Mine"}, assignments=["algorithm.kind=ab"])


def test_of_a_preset_only_settings_of_its_own_algorithm_are_left_out(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own, file = {"algorithm.name": "reinforce:Reinforce"}, tmp_path / "mine.yaml"
    file.write_text("algorithm: {gae_lambda: 0.9, rollout_length: 7, baselin: true}")
    with pytest.raises(UserError, match=r"There is no key 'algorithm\.baselin'"):
        load_config(config=file, overrides=own)
    file.write_text("algorithm: {gae_lambda: 0.9, rollout_length: 7, baseline: false}")
    config, _ = load_config(config=file, overrides=own)
    assert (config.algorithm.rollout_length, config.algorithm.baseline) == (7, False)


def test_a_game_lends_its_preset_and_keys_of_its_own_are_checked(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    config, source = load_config(env_id="Catch", overrides={"algorithm.name": "reinforce:Reinforce"})
    assert (source, config.algorithm.rollout_length, config.model.pixels) == ("catch", 16, "standardized")
    with pytest.raises(UserError, match=r"There is no key 'algorithm\.gae_lambda' of reinforce:Reinforce"):
        load_config(overrides={"algorithm.name": "reinforce:Reinforce"}, assignments=["algorithm.gae_lambda=0.9"])


WRONG = {
    "nowhere:Thing": "there is no module 'nowhere' here or on PYTHONPATH",
    "json:Thing": "the module 'json' has no 'Thing'",
    "json:dumps": "json:dumps is no algorithm: it needs an attribute Section",
    "os:environ": "os:environ is no algorithm: it needs an attribute Section",
    ":Thing": "is not of the form module:name",
    "a b:Thing": "is not of the form module:name",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_is_no_algorithm_is_told(name, run_cli):
    ended = run_cli("train", "--env", "Catch", "--algorithm", name)
    assert ended.returncode == 2
    assert WRONG[name] in ended.stderr


UNFINISHED = """
import warnings

import keras
import tensorflow as tf

from a2c.algorithms.section import Metric
from a2c.algorithms.sections import ReplaySection
from a2c.types import Probability
from pydantic import Field
from reinforce import AlgorithmSection, Reinforce

class NoTitle(Reinforce):
    class Section(AlgorithmSection):
        METRICS = ()

class NoMetrics(Reinforce):
    class Section(AlgorithmSection):
        TITLE = "mine"

class Names(Reinforce):
    class Section(NoMetrics.Section):
        METRICS = ("policy_loss",)

class NoSteps(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        del self.steps, self.variables

class NoModel(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.variables = {"model": self.variables["optimizer"], "network": self.variables["model"]}

class NoOptimizer(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.variables = {"model": self.variables["model"]}

class Raw(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.variables["mine"] = [tf.Variable(1.0)]

class Penalty(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.penalty = keras.Variable(1.0)

class Target(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.target = keras.models.clone_model(self.policy.model)

class Unlisted(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.variables["penalty"] = keras.Variable(1.0)

class Listed(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.variables = [self.policy.model.variables]

class Bare(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.steps = {"update": self.steps["update"].apply}

class Raises(Reinforce):
    def __init__(self, *arguments):
        raise IndexError("too far")

class Twice(Reinforce):
    class Section(Reinforce.Section):
        METRICS = (*Reinforce.Section.METRICS, Metric("entropy", "again"))

class Promised(Reinforce):
    class Section(Reinforce.Section):
        PROMISES = {"workers": False}

class Unlikely(Reinforce):
    class Section(Reinforce.Section):
        share: Probability = 1.5

class Odd(Reinforce):
    class Section(Reinforce.Section):
        kind: object = print

class Numbered(Reinforce):
    class Section(Reinforce.Section):
        kinds: dict = {1: 2}

class Method(Reinforce):
    with warnings.catch_warnings(action="ignore"):  # pydantic's, about the same
        class Section(Reinforce.Section):
            groups: int = 3

class Form(Reinforce):
    class Section(Reinforce.Section):
        METRICS = (*Reinforce.Section.METRICS, Metric("mine", "mine", form="zz"))

class Column(Reinforce):
    class Section(Reinforce.Section):
        METRICS = (Metric("env_steps", "mine"),)

class Check(Reinforce):
    class Section(Reinforce.Section):
        def check(self, env_steps, rollout):
            self.nonsense

class Rollouts(Reinforce):
    class Section(Reinforce.Section):
        rollouts_per_update = property(lambda self: 0)

class Promise(Reinforce):
    class Section(Reinforce.Section):
        PROMISES: dict = {}

class Factory(Reinforce):
    class Section(Reinforce.Section):
        @staticmethod
        def late():
            raise IndexError("too late")

        late: int = Field(default_factory=late)

class NoMemory(Reinforce):
    class Section(ReplaySection):
        TITLE, METRICS = "mine", ()
        baseline: bool = True

class Several(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.several = {"the first": [keras.models.clone_model(self.policy.model)]}

class Old(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.old = self.build_policy(*arguments)

class Stray(Reinforce):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.steps["update"].apply_to.append(keras.Variable(1.0, name="stray"))

class Exit(Reinforce):
    class Section(Reinforce.Section):
        def check(self, env_steps, rollout):
            raise SystemExit(3)
"""
INCOMPLETE = {
    "NoTitle": "unfinished:NoTitle: its Section needs a TITLE, the name and the source of the algorithm.",
    "NoMetrics": "unfinished:NoMetrics: its Section needs METRICS, a tuple of the Metric that an update reports.",
    "Names": "unfinished:Names: its Section needs METRICS, a tuple of the Metric that an update reports.",
    "NoSteps": "unfinished:NoSteps has no steps and no variables, which its `__init__` has to set.",
    "NoModel": "unfinished:NoModel: its `variables` need a list named 'model', `policy.model.variables`: else other "
    "weights are played than were learned.",
    "NoOptimizer": "unfinished:NoOptimizer: its `variables` lack the variables of the optimizer, which the step "
    "'update' changes: a resumed run would not have it.",
    "Stray": "unfinished:Stray: its `variables` lack stray, which the step 'update' changes: a resumed run "
    "would not have it.",
    "Raw": "unfinished:Raw: its `variables` hold a ResourceVariable; each has to be a keras.Variable.",
    **{
        f"{name.title()}": f"unfinished:{name.title()}: its `variables` lack self.{name}: a resumed run would not have "
        "it. A constant or a function of the update's number can be a tf.Variable, which need not be there."
        for name in ("penalty", "target", "several", "old")
    },
    "Unlisted": "unfinished:Unlisted: its `variables['penalty']` is a Variable; make it a list.",
    "Listed": "unfinished:Listed: its `variables` is a list, and has to be a dict, by name.",
    "Bare": "unfinished:Bare: its step 'update' is a method; make it a GradientStep.",
    "Raises": "unfinished:Raises cannot be built: IndexError: too far (unfinished.py, line 72).",
    "Twice": "unfinished:Twice: the METRICS of its Section have 'entropy' twice; leave one out.",
    "Promised": "unfinished:Promised: the PROMISES of its Section have to be Promises(...) of a2c.algorithms.section.",
    "Unlikely": "unfinished:Unlikely: the default of share of its Section is 1.5, and should be a finite number from 0 "
    "to 1.",
    "Odd": "unfinished:Odd: kind of its Section is <built-in function print>, which config.yaml cannot hold; a "
    "setting is a number, a text, true or false, a list or a mapping with texts as keys.",
    "Numbered": "unfinished:Numbered: kinds of its Section is {1: 2}, which config.yaml cannot hold; a setting is a "
    "number, a text, true or false, a list or a mapping with texts as keys.",
    "Method": "unfinished:Method: groups cannot be a setting, since every Section has it; leave its type out, or name "
    "the setting otherwise.",
    "Promise": "unfinished:Promise: PROMISES cannot be a setting, since every Section has it; leave its type out, or "
    "name the setting otherwise.",
    "Factory": "unfinished:Factory: the default of late of its Section cannot be checked: IndexError: too late "
    "(unfinished.py, line 124).",
    "Form": "unfinished:Form: mine of its METRICS has the form 'zz', which shows no number; give one such as '.3f'.",
    "Column": "unfinished:Column: env_steps of its METRICS is a column that every run has; name the metric otherwise.",
    "Check": "unfinished:Check: its Section cannot check the settings: AttributeError: 'Section' object has no "
    "attribute 'nonsense' (unfinished.py, line 110).",
    "Exit": "unfinished:Exit: its Section cannot check the settings: SystemExit: 3 (unfinished.py, line 151).",
    "Rollouts": "the options given: algorithm.name=unfinished:Rollouts has rollouts_per_update=0, which should be a "
    "whole number of at least 1.",
    "NoMemory": "unfinished:NoMemory has no memory; set its replay as `self.memory`, else it is not saved.",
}


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """The folder of a module that is executed once for all tests, as its many classes take time."""
    folder = tmp_path_factory.mktemp("unfinished")
    (folder / "unfinished.py").write_text(UNFINISHED)
    yield folder
    sys.modules.pop("unfinished", None)


@pytest.mark.parametrize("name", INCOMPLETE)
def test_an_algorithm_of_ones_own_that_lacks_something_is_told_before_a_folder_is_made(
    name, run_cli, tmp_path, unfinished, monkeypatch
):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(unfinished))
    ended = run_cli("train", "--env", "Catch", "--algorithm", f"unfinished:{name}", "--run-dir", tmp_path / "run")
    assert (ended.returncode, ended.stderr) == (2, f"a2c: {INCOMPLETE[name]}\n")
    assert not (tmp_path / "run").exists()


def test_a_mistake_in_the_environment_is_not_blamed_on_an_algorithm_of_ones_own(monkeypatch):
    with pytest.raises(UserError, match=r"^env\.id=Pong-ram-v4 shows the memory of the console"):
        load_config(env_id="Pong-ram-v4", overrides={"algorithm.name": extensions.register(imported("algorithm"))})


def changed(**attributes):
    """A subclass of examples/reinforce.py with other attributes."""
    return type("Changed", (imported("algorithm"),), {"__module__": "changed", **attributes})


def test_ones_own_that_a_file_names_is_not_that_of_the_other_arms(tmp_path):
    (tmp_path / "mine.yaml").write_text("algorithm: {name: 'reinforce:Reinforce'}")
    mine, name = str(tmp_path / "mine.yaml"), "reinforce:Reinforce"
    assert only_trusts(name, CONFIGURATIONS, [mine, "catch-ppo"])
    assert not only_trusts(name, CONFIGURATIONS, ["catch", "catch-ppo"])
    assert not only_trusts("munchausen:Munchausen", CONFIGURATIONS, [mine, "catch-ppo"])
    assert only_trusts(name, ALGORITHMS, ["a2c", mine])
    (tmp_path / "wrapped.yaml").write_text("model: {name: 'net:build'}\nenv: {wrappers: ['w:A', {'w:B': {x: 1}}]}")
    for code in ("net:build", "w:A", "w:B"):
        assert only_trusts(code, CONFIGURATIONS, [str(tmp_path / "wrapped.yaml"), "catch-ppo"])
        assert not only_trusts(code, CONFIGURATIONS, [mine, "catch-ppo"])
    assert only_trusts(name, ALGORITHMS, ["a2c", name])
    assert not only_trusts(name, ALGORITHMS, ["a2c", "ppo"])


@pytest.mark.integration
def test_ones_own_is_compared_by_its_name_and_in_a_file_that_an_option_allows(run_cli, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    (tmp_path / "mine.yaml").write_text("algorithm: {name: 'reinforce:Reinforce'}\nenv: {id: Catch}\n")
    brief = ["--steps", 512, "--seeds", 1, "--threshold", 0.5]
    for arms in (["reinforce:Reinforce"], ["mine.yaml", "--algorithm", "reinforce:Reinforce"]):
        forget(monkeypatch)
        ended = run_cli("compare", "a2c", *arms, *brief, "--out", f"out-{len(arms)}", cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert arms[0].removesuffix(".yaml") in ended.stdout
        assert len([*(tmp_path / f"out-{len(arms)}/runs").iterdir()]) == 2
    forget(monkeypatch)
    refused = run_cli("compare", "a2c", "mine.yaml", cwd=tmp_path)
    assert (refused.returncode, "say so with --algorithm reinforce:Reinforce" in refused.stderr) == (2, True)


def test_a_network_that_is_not_that_of_the_configuration_is_played_and_resumed(tmp_path):
    """As of C51, which has many outputs for each action."""
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    other, _ = load_config(env_id="Catch", overrides={"model.name": "small"})
    own = imported("algorithm").build_policy
    kind = changed(build_policy=staticmethod(lambda config, *spaces: own(other, *spaces)))
    train(config, tmp_path / "run", algorithm=kind)
    assert evaluate(tmp_path / "run", episodes=2).episodes == 2
    longer = config.model_copy(update={"total_env_steps": 1024})
    assert train(longer, tmp_path / "run", resume=True, algorithm=kind).counters.env_steps == 1024


def settings_with(**named):
    """Settings for `VECTORS` with an algorithm or a network of one's own."""
    config = small_config(env={"id": "Bandit"}, model={"name": "mlp"}, runtime=GRAPH).model_dump(mode="json")
    for option, thing in named.items():
        config[option] = {"name": extensions.register(thing)}
    return build_config(config, where="test")


def built(kind):
    return build_algorithm(settings_with(algorithm=kind), VECTORS, 3)


def fails(*arguments, **more):
    raise IndexError("too few")


def headless(space, *arguments, **more):
    return keras.Sequential([keras.Input(space.shape), keras.layers.Dense(3)])


@pytest.mark.parametrize(
    ("option", "own", "told"),
    [
        ("algorithm", fails, "changed:Changed cannot be built: IndexError: too few (test_examples.py, line "),
        ("model", fails, "The network of test_examples:fails cannot be built: IndexError: too few (test_examples.py, "),
        ("model", headless, "The network of test_examples:headless has outputs of shapes [(None, 3)], and needs "),
    ],
)
def test_a_policy_that_cannot_be_built_is_told(option, own, told):
    own = changed(build_policy=staticmethod(own)) if option == "algorithm" else own
    with pytest.raises(UserError, match="^" + re.escape(told)):
        build_policy(settings_with(**{option: own}), VECTORS, 3)


def test_a_step_that_does_not_exist_is_told():
    algorithm = built(changed(batches=lambda self, rollout, updates: (("other", None) for _ in "1")))
    with pytest.raises(ValueError, match="`batches` yielded the step 'other', and `steps` has update"):
        algorithm.update(None, 0)


def test_a_batch_without_the_name_of_its_step_is_told():
    algorithm = built(changed(batches=lambda self, rollout, updates: (Rollout for _ in "1")))
    with pytest.raises(TypeError, match="`batches` yielded a type; yield a tuple of two"):
        algorithm.update(None, 0)


def test_batches_that_are_no_generator_are_told():
    with pytest.raises(TypeError, match="`batches` returned a list; make it a generator"):
        built(changed(batches=lambda self, rollout, updates: [])).update(None, 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda fit: fit.loss, "the loss of a GradientStep has to return a Fit, not SymbolicTensor"),
        (lambda fit: fit._replace(loss=fit.loss[None]), r"loss must have rank 0, got shape \(1,\)"),
    ],
)
def test_a_loss_that_is_no_scalar_of_a_fit_is_told(wrong, told):
    right = imported("algorithm")._loss
    with pytest.raises((TypeError, ValueError), match=told):
        built(changed(_loss=lambda self, *batch: wrong(right(self, *batch)))).trace()


def test_a_variable_that_the_loss_does_not_reach_hides_no_stage_that_is_not_finite():
    """The value head, if the loss is only of the logits."""

    def only_of_logits(self, batch, tap, pool):
        fit = imported("algorithm")._loss(self, batch, tap, pool)
        logits, _ = self.policy.model(batch.observations[0])
        return fit._replace(loss=tap("mine", np.nan * tf.reduce_sum(logits)))

    step = built(changed(_loss=only_of_logits)).steps["update"]
    batch = tf.nest.map_structure(lambda spec: np.ones(spec.shape, spec.dtype.as_numpy_dtype), step.signature)
    gradients, _ = step.gradients(batch)
    assert [gradient is None for gradient in gradients].count(True) == 2
    assert nonfinite_stage(step, batch) == "stage 'mine'"
    assert nonfinite_stage(step, batch._replace(returns=np.nan * batch.returns)) == "batch.returns"


def test_a_loss_that_is_not_finite_is_no_stage_of_a_gradient():
    """In a loss that taps nothing itself."""

    def nan(self, batch, tap, pool):
        fit = imported("algorithm")._loss(self, batch, tap, pool)
        return fit._replace(loss=np.nan * fit.loss)

    step = built(changed(_loss=nan)).steps["update"]
    batch = tf.nest.map_structure(lambda spec: np.ones(spec.shape, spec.dtype.as_numpy_dtype), step.signature)
    assert nonfinite_stage(step, batch) == "stage 'total_loss'"


def test_a_loss_may_have_another_dtype_than_the_weights():
    right = imported("algorithm")._loss

    def double(self, *batch):
        fit = right(self, *batch)
        return fit._replace(loss=tf.cast(fit.loss, tf.float64))

    steps = [built(changed(_loss=loss)).steps["update"] for loss in (right, double)]
    batch = tf.nest.map_structure(lambda spec: np.ones(spec.shape, spec.dtype.as_numpy_dtype), steps[0].signature)
    plain, doubled = (step(batch) for step in steps)
    assert doubled["total_loss"].dtype == tf.float64
    assert {name: float(metric) for name, metric in doubled.items()} == pytest.approx(
        {name: float(metric) for name, metric in plain.items()}
    )
    assert all(step.is_finite(metrics) for step, metrics in zip(steps, (plain, doubled), strict=True))


def test_a_step_without_values_explains_no_variance():
    right = imported("algorithm")._loss
    both = [
        built(changed(_loss=loss)).steps["update"]
        for loss in (right, lambda self, *batch: Fit(*right(self, *batch)[:2]))
    ]
    batch = tf.nest.map_structure(lambda spec: np.ones(spec.shape, spec.dtype.as_numpy_dtype), both[0].signature)
    reported, without = (step(batch) for step in both)
    assert reported.keys() - without.keys() == {"explained_variance"}
    assert all(float(without[name]) == float(reported[name]) for name in without)


def test_a_signature_that_is_no_named_tuple_is_told():
    with pytest.raises(UserError, match=r"The signature of a GradientStep is a list; make it a named tuple\."):
        GradientStep(print, [], keras.optimizers.SGD(), [tf.TensorSpec(())], max_grad_norm=1.0, mode="eager")


def test_a_batch_with_a_field_too_few_is_told():
    with pytest.raises(ValueError, match=r"expected 4 tensors \(observations, actions, returns, whole\), not 1"):
        built(changed()).steps["update"]((np.zeros((2, 2), np.float32),))


@pytest.mark.parametrize("form", [dict, tuple])
def test_a_batch_of_another_type_than_the_signature_is_told(form):
    """TensorFlow sorts the keys of a dict, so that fields of one shape would take each other's place."""
    right = imported("algorithm").batches

    def other(self, rollout, updates):
        for name, batch in right(self, rollout, updates):
            yield name, batch._asdict() if form is dict else tuple(batch)

    algorithm = built(changed(batches=other))
    t, b = algorithm.steps["update"].signature.actions.shape
    with pytest.raises(TypeError, match=f"^the batch of the step 'update' is a {form.__name__}; yield a Played$"):
        algorithm.update(make_rollout(0, t=t, b=b), 0)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("update", r"^`update` returned a NoneType; return an Update$"),
        ("iterate", r"^`iterate` returned a NoneType; return an Iteration of an Update and the games$"),
        ("gauges", r"^`gauges` returned a NoneType; return a dict$"),
    ],
)
def test_what_a_method_must_return_is_told(method, told, tmp_path):
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    with pytest.raises(CrashError) as error:
        train(config, tmp_path / "run", algorithm=changed(**{method: lambda *_: None}))
    with pytest.raises(TypeError, match=told):
        raise error.value.__cause__


@pytest.mark.parametrize("value", [np.ones(2), "high", None])
def test_a_metric_that_is_no_number_is_told(value, tmp_path):
    section = imported("algorithm").Section
    more = type("Section", (section,), {"METRICS": (*section.METRICS, Metric("mood", "mood"))})
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    moody = changed(Section=more, gauges=lambda self: {"mood": value})
    with pytest.raises(UserError, match=r"changed:Changed: its updates report 'mood' as .*, and a metric has to be a"):
        train(config, tmp_path / "run", algorithm=moody)


@pytest.mark.parametrize(
    "name", ["scale/more", "collector", "collector-2", "meta", "memory", "segments", "a\nb", "", 3]
)
def test_a_name_that_a_checkpoint_cannot_hold_is_told(name):
    with pytest.raises(UserError, match=f"its `variables` cannot have .*{re.escape(repr(name))}: a printable text"):
        built(with_groups(name))


def test_networks_that_are_not_saved_are_told():
    with pytest.raises(UserError, match="its `networks` name 'critic', which its `variables` lack"):
        built(changed(networks=("critic",)))


def test_a_memory_without_what_is_called_is_told():
    with pytest.raises(UserError, match="its memory is a int without row_bytes and total and first and state and rest"):
        built(changed(memory=3))


def with_groups(*names):
    """A subclass of examples/reinforce.py with further lists of variables, which are empty."""

    def __init__(self, *arguments):  # noqa: N807
        imported("algorithm").__init__(self, *arguments)
        self.variables |= {name: [] for name in names}

    return changed(__init__=__init__)


def test_a_name_that_is_like_those_of_a_checkpoint_is_allowed():
    assert "collector rate" in built(with_groups("collector rate", "meta-memory")).variables


def test_a_run_that_learned_nothing_says_so(tmp_path):
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    told = []
    train(config, tmp_path / "run", algorithm=changed(batches=lambda self, *_: (b for b in ())), warn=told.append)
    assert told == ["Nothing was learned: the run made no gradient step."]


def test_another_policy_than_the_one_that_learns_may_act(tmp_path):
    acted = []

    class Noted:
        def __init__(self, policy):
            self.policy = policy

        def __getattr__(self, name):
            return getattr(self.policy, name)

        def explore(self, observations, seed):
            acted.append(len(observations))
            return self.policy.explore(observations, seed)

    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    train(config, tmp_path / "run", algorithm=changed(behaviour=property(lambda self: Noted(self.policy))))
    assert sum(acted) == 512


def test_a_run_in_groups_resumes_without_a_word_of_another_machine(tmp_path, monkeypatch):
    reinforce = imported("algorithm")
    for module in ("a2c.run.training", "a2c.run.checkpoint", "reinforce"):  # as on two cores
        monkeypatch.setattr(f"{module}.parts_of", lambda config: 2)
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    told = []
    for longer, resume in ((config, False), (config.model_copy(update={"total_env_steps": 1024}), True)):
        train(longer, tmp_path / "run", algorithm=reinforce, resume=resume, warn=told.append)
    assert "was written on" not in " ".join(told)


def test_a_metric_that_is_never_reported_is_told(tmp_path):
    section = imported("algorithm").Section
    more = type("Section", (section,), {"METRICS": (*section.METRICS, Metric("surprise", "surprise"))})
    config, _ = load_config(env_id="Catch", overrides={"total_env_steps": 512, "runtime.mode": "eager"})
    with pytest.raises(UserError, match="its updates report no scalar 'surprise', which the METRICS of its Section"):
        train(config, tmp_path / "run", algorithm=changed(Section=more))


@pytest.mark.integration
def test_the_same_command_again_resumes_a_run_of_ones_own(run_cli, tmp_path, monkeypatch):
    """In the default game, which the command does not name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    brief = [
        "env.num_envs=2",
        "env.threads=1",
        "algorithm.rollout_length=4",
        "env.screen_size=42",
        "evaluation.episodes=0",
    ]
    command = [
        "--algorithm",
        "reinforce:Reinforce",
        "--steps",
        16,
        "--eager",
        "--run-dir",
        tmp_path / "r",
        "--auto-resume",
    ]
    for _ in range(2):
        forget(monkeypatch)
        ended = run_cli("train", *command, *(word for text in brief for word in ("--set", text)))
        assert ended.returncode == 0, ended.stderr


def test_a_run_keeps_its_own_algorithm(run_cli, tmp_path):
    ended = run_cli("resume", tmp_path, "--algorithm", "ppo")
    said = "Runs and files keep their own algorithm, network and wrappers; leave 'ppo' out."
    said += " Code of yours is named module:Name."
    assert (ended.returncode, ended.stderr) == (2, f"a2c: {said}\n")


def test_what_a_script_defines_is_known_by_the_name_of_its_file(monkeypatch):
    """Another process cannot import it from __main__."""
    monkeypatch.setenv(extensions.TRUSTED, "__main__:Nothing")
    with pytest.raises(UserError, match="no other process can import what a notebook defines; put it into a file"):
        extensions.find_extension("__main__:Nothing", "algorithm")
    script = type(sys)("__main__")
    script.__file__ = str(EXAMPLES / "reinforce.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    own = type("Reinforce", (), {"__module__": "__main__"})
    assert extensions.register(own) == "reinforce:Reinforce"
