"""The section of each algorithm, and their table; [sources] are in `a2c.config.explain`. No TensorFlow here."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from a2c.algorithms.section import EXPLAINED_VARIANCE, LOSSES, STEP, AlgorithmSection, Length, Metric, Promises
from a2c.extensions import as_user_error, find_extension, is_extension
from a2c.messages import allowed, nearest, shown
from a2c.types import NUMBER, Coefficient, NonNegativeInt, Probability, UserError

# shared parts of SPACE
_LEARNING_RATE = {"low": 1e-4, "high": 1e-2, "log": True}
_OF_ONE_STEP = {"low": 3e-4, "high": 1e-2, "log": True}  # a learning rate, if a rollout is one gradient step
_ENTROPY = {"low": 0.0, "high": 0.03}
_LAMBDA = {"low": 0.8, "high": 1.0}
_OF_A_REPLAY: dict[str, Any] = {
    "optimizer.learning_rate": {"low": 5e-5, "high": 2e-3, "log": True},
    "algorithm.gradient_steps": [1, 2, 4, 8],
    "algorithm.batch_size": [32, 64, 128],
    "algorithm.n_step": {"low": 1, "high": 10},
}


class ActorCriticSection(AlgorithmSection):
    """The settings that A2C, PPO and A3C share."""

    gae_lambda: Probability = 1.0
    """Of GAE (Schulman et al. 2016); 1 = n-step returns [zoo]."""
    normalize_advantages: bool = False
    """Shift and scale the advantages of a batch to mean 0 and standard deviation 1 [zoo]."""
    value_loss_coef: Coefficient = 0.25
    """Weight of the mean squared error of the values [zoo]."""
    entropy_coef: Coefficient = 0.01
    """Weight of the policy's entropy, which the loss rewards [zoo], [a3c]."""
    noise_hold: Length = 1
    """Steps for which an environment in eight keeps the random numbers that draw its actions; 1 = none does."""

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
        _check_normalized(self.normalize_advantages, env_steps, rollout)


def _check_normalized(normalize: bool, rows: int, batch: str) -> None:
    """Raise ValueError if the advantages of a batch, described in words, would be normalized to 0."""
    if normalize and rows == 1:
        raise ValueError(
            f"algorithm.normalize_advantages=true needs a batch of at least 2 steps, and it has 1 ({batch}): "
            "a single advantage less its mean is always 0"
        )


class A2CSection(ActorCriticSection):
    """The A2C estimator and its loss."""

    IMPLEMENTATION = "a2c.algorithms.a2c:A2C"
    TITLE = "A2C, advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783, synchronous)"
    METRICS = (*LOSSES, EXPLAINED_VARIANCE, *STEP)
    SPACE: ClassVar[dict[str, Any]] = {
        "optimizer.learning_rate": _OF_ONE_STEP,
        "algorithm.entropy_coef": _ENTROPY,
        "algorithm.gae_lambda": _LAMBDA,
        "algorithm.rollout_length": [8, 16, 32, 64],
        "algorithm.normalize_advantages": [False, True],
        "algorithm.gamma": [0.97, 0.98, 0.99, 0.995],
    }

    name: Literal["a2c"] = "a2c"


def _check_cut(section: AlgorithmSection, key: str) -> None:
    """Raise ValueError if a rollout cannot be split into equal minibatches; `key` is the setting of their number."""
    number = getattr(section, key)
    if section.rollout_length % number:
        raise ValueError(
            f"algorithm.rollout_length={section.rollout_length} cannot be cut into algorithm.{key}={number} of equal "
            "size; give a multiple of it"
        )


class PPOSection(ActorCriticSection):
    """The clipped surrogate, epochs and minibatches of PPO; defaults of the paper's Atari runs unless noted."""

    IMPLEMENTATION = "a2c.algorithms.ppo:PPO"
    TITLE = "PPO, proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)"
    METRICS = (
        *LOSSES,
        EXPLAINED_VARIANCE,
        Metric("approx_kl", "KL from the policy that acted", form=".2g"),
        Metric("clip_fraction", "fraction of ratios clipped", form=".2f"),
        *STEP,
    )
    SPACE: ClassVar[dict[str, Any]] = {
        "optimizer.learning_rate": _LEARNING_RATE,
        "algorithm.entropy_coef": _ENTROPY,
        "algorithm.gae_lambda": _LAMBDA,
        "algorithm.rollout_length": [32, 64, 128],
        "algorithm.num_epochs": {"low": 1, "high": 8},
        "algorithm.num_minibatches": [1, 2, 4, 8],
        "algorithm.clip_range": {"low": 0.05, "high": 0.3},
    }

    name: Literal["ppo"] = "ppo"
    rollout_length: Length = 128
    """T: steps of each environment that are collected before something is learned [zoo]."""
    gae_lambda: Probability = 0.95
    """Of GAE (Schulman et al. 2016); 1 = n-step returns."""
    value_loss_coef: Coefficient = 0.25
    """Weight of the mean squared error of the values [oa]."""
    normalize_advantages: bool = True
    """Shift and scale the advantages of each minibatch to mean 0 and standard deviation 1, as in baselines."""
    num_epochs: Annotated[int, Field(ge=1, le=1000), NUMBER] = 4
    """Times that a rollout is learned from [zoo]; the paper has 3."""
    num_minibatches: Annotated[int, Field(ge=1, le=4096), NUMBER] = 4
    """Of an epoch [zoo]."""
    clip_range: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 0.1
    """The ratio of the new probability of an action to the old one is clipped to 1 minus and plus this."""
    clip_schedule: Literal["constant", "linear"] = "constant"
    """Of the clip range; linear falls to 0 over the run, as in the paper."""
    entropy_schedule: Literal["constant", "linear"] = "constant"
    """Of entropy_coef; linear falls to 0 over the run."""
    value_clip_range: Annotated[float, Field(gt=0, le=1e6), NUMBER] | None = None
    """The most that a value may move from the old one in the clipped value loss, as in baselines; null = off, as
    clipping is of no use (Andrychowicz et al. 2021)."""
    target_kl: Annotated[float, Field(gt=0), NUMBER] | None = None
    """An update ends after the gradient step whose approx_kl is above this; null = never."""
    target_clip_fraction: Annotated[float, Field(gt=0, lt=1), NUMBER] | None = None
    """If an update clips more than this, the learning rate falls by 5 %, else it rises, at most to its schedule; null =
    always the schedule."""

    def passes(self, num_envs: int) -> float:
        """See `AlgorithmSection`."""
        return float(self.num_epochs)

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
        super().check(env_steps // self.num_minibatches, rollout)
        _check_cut(self, "num_minibatches")


class TRPOSection(AlgorithmSection):
    """The trust region of TRPO, and the fit of its value function."""

    IMPLEMENTATION = "a2c.algorithms.trpo:TRPO"
    TITLE = "TRPO, trust region policy optimisation (Schulman et al. 2015, arXiv 1502.05477)"
    METRICS = (
        Metric("policy_loss", "policy loss after the step", form="+.4f"),
        Metric("value_loss", "value loss"),
        Metric("entropy", "entropy (nats)", form=".3f"),
        Metric("kl", "KL of the step (nats)", form=".2g"),
        Metric("step_fraction", "fraction of the whole step that was made, 0 = none", form=".2f"),
        EXPLAINED_VARIANCE,
        Metric("policy_grad_norm", "gradient norm of the policy", "optimizer"),
        Metric("grad_norm", "gradient norm of the value function before clipping", "optimizer"),
        Metric("learning_rate", "learning rate of the value function", "optimizer", ".2g", plotted=False),
    )
    PROMISES = Promises(workers=False)
    SEPARATE_VALUE = True
    SPACE: ClassVar[dict[str, Any]] = {
        "optimizer.learning_rate": _LEARNING_RATE,
        "algorithm.max_kl": {"low": 0.003, "high": 0.05, "log": True},
        "algorithm.gae_lambda": _LAMBDA,
        "algorithm.rollout_length": [32, 64, 128],
        "algorithm.cg_damping": {"low": 0.01, "high": 0.3, "log": True},
        "algorithm.value_epochs": {"low": 1, "high": 10},
    }

    name: Literal["trpo"] = "trpo"
    rollout_length: Length = 128
    """T: with 16 environments 2,048 steps [sb3]."""
    gae_lambda: Probability = 0.95
    """Of GAE (Schulman et al. 2016); 1 = n-step returns [sb3]."""
    normalize_advantages: bool = True
    """Shift and scale the advantages to mean 0 and standard deviation 1 [oa], [sb3]."""
    max_kl: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 0.01
    """The most that the policy may move in an update, in nats [trpo]."""
    cg_iterations: Annotated[int, Field(ge=1, le=1000), NUMBER] = 10
    """Of conjugate gradients [trpo]."""
    cg_damping: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 0.1
    """Added to the diagonal of the Fisher matrix [sb3]."""
    fisher_stride: Annotated[int, Field(ge=1, le=4096), NUMBER] = 5
    """Every so many rows make the Fisher matrix [oa]; the paper takes a tenth."""
    backtracks: Annotated[int, Field(ge=1, le=1000), NUMBER] = 10
    """Step lengths that are tried [oa], [sb3]."""
    backtrack_ratio: Annotated[float, Field(gt=0, lt=1), NUMBER] = 0.8
    """Of each step length to the one before [sb3]."""
    value_epochs: Annotated[int, Field(ge=1, le=1000), NUMBER] = 5
    """Times that the values are fitted to a rollout [oa]."""
    value_minibatches: Annotated[int, Field(ge=1, le=4096), NUMBER] = 16
    """Of an epoch: 128 steps each [sb3]."""

    def passes(self, num_envs: int) -> float:
        """See `AlgorithmSection`: half of the network is the policy, and a Fisher product is a pass over some rows."""
        return (1 + (self.cg_iterations + 1) / self.fisher_stride + self.value_epochs) / 2

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
        _check_normalized(self.normalize_advantages, env_steps, rollout)
        _check_cut(self, "value_minibatches")


class A3CSection(ActorCriticSection):
    """A2C's loss, and the asynchronous actors."""

    IMPLEMENTATION = "a2c.algorithms.a3c:A3C"
    TITLE = "A3C, asynchronous advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783)"
    METRICS = (
        *LOSSES,
        EXPLAINED_VARIANCE,
        *STEP,
        Metric("staleness", "staleness (steps of other actors)", "optimizer", ".2f"),
    )
    PROMISES = Promises(exact=False, modes=False, workers=False)
    SPACE: ClassVar[dict[str, Any]] = {
        "optimizer.learning_rate": _OF_ONE_STEP,
        "algorithm.entropy_coef": _ENTROPY,
        "algorithm.gae_lambda": _LAMBDA,
        "algorithm.rollout_length": [8, 16, 32],
        "algorithm.normalize_advantages": [False, True],
    }

    name: Literal["a3c"] = "a3c"
    actors: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0
    """Threads that act and learn; 0 = one per core, or the next fewer that divide env.num_envs."""
    rollouts: Annotated[int, Field(ge=1, le=100_000), NUMBER] = 20
    """Of each actor in an update, after which all meet."""

    @property
    def rollouts_per_update(self) -> int:
        """See `AlgorithmSection`."""
        return self.rollouts

    def groups(self, num_envs: int, cores: int) -> int:
        """See `AlgorithmSection`: one for each actor."""
        return self.actors or next(n for n in range(min(cores, num_envs), 0, -1) if num_envs % n == 0)

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
        num_envs = env_steps // (self.rollouts * self.rollout_length)
        if self.actors and num_envs % self.actors:
            raise ValueError(
                f"env.num_envs={num_envs} cannot be shared evenly by algorithm.actors={self.actors}; give a multiple "
                "of it"
            )
        envs = num_envs // self.actors if self.actors else 1  # of each actor, at least
        super().check(envs * self.rollout_length, f"{rollout} of {self.actors or f'up to {num_envs}'} actors")


class ReplaySection(AlgorithmSection):
    """The settings of what learns from a replay."""

    PROMISES = Promises(workers=False)
    BOOTSTRAPS = False

    rollout_length: Length = 4
    """T: steps of each environment between two times of learning, the train frequency [zoo]."""
    replay_capacity: Annotated[int, Field(ge=1, le=2**40), NUMBER] = 100_000
    """Transitions that are kept, the latest of all environments [zoo]; [dqn] has 1 M."""
    learning_starts: NonNegativeInt = 100_000
    """Transitions that are collected before the first gradient step [zoo]; [dqn] has 50,000."""
    gradient_steps: Annotated[int, Field(ge=1, le=100_000), NUMBER] = 1
    """After each rollout [zoo]."""
    batch_size: Annotated[int, Field(ge=1, le=65_536), NUMBER] = 32
    """Transitions of a gradient step [zoo], [dqn]."""
    n_step: Annotated[int, Field(ge=1, le=1000), NUMBER] = 1
    """Rewards in a target before the network's own estimate [rainbow]: it has 3."""

    def passes(self, num_envs: int) -> float:
        """See `AlgorithmSection`: the next observations go forward only, which is a third."""
        return 4 / 3 * self.gradient_steps * self.batch_size / (self.rollout_length * num_envs)

    def warmed_up(self) -> Self:
        """See `AlgorithmSection`."""
        return self.model_copy(update={"learning_starts": 0})

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
        if env_steps > self.replay_capacity:
            raise ValueError(
                f"algorithm.replay_capacity={self.replay_capacity} is less than one rollout of {env_steps} steps "
                f"({rollout}); give at least {env_steps}, or make the rollout smaller"
            )


class DQNSection(ReplaySection):
    """DQN, its schedule of exploration, and the switches for what was found later; all off, as in the paper."""

    IMPLEMENTATION = "a2c.algorithms.dqn:DQN"
    HEAD = "Q-values"
    TITLE = "DQN, deep Q-network (Mnih et al. 2015, doi 10.1038/nature14236)"
    METRICS = (
        Metric("total_loss", "Huber loss of the TD errors"),
        Metric("q_value", "mean Q of the actions taken", form="+.3f"),
        Metric("td_error", "mean size of the TD errors", form=".3f"),
        Metric("epsilon", "epsilon of the next rollout", "exploration", ".3f"),
        Metric("replay_size", "transitions that can be sampled", "exploration", ",.0f", plotted=False),
        *STEP,
    )
    SPACE: ClassVar[dict[str, Any]] = {
        **_OF_A_REPLAY,
        "algorithm.target_update": {"low": 50, "high": 5000, "log": True},
        "algorithm.exploration_fraction": {"low": 0.02, "high": 0.5},
    }

    name: Literal["dqn"] = "dqn"
    target_update: Annotated[int, Field(ge=1, le=2**62), NUMBER] = 250
    """Gradient steps between two copies of the network to its target: 1,000 agent steps of [zoo]; [dqn] has 10,000."""
    exploration_fraction: Probability = 0.1
    """Of the run, in which epsilon falls from 1 to final_epsilon [zoo]."""
    final_epsilon: Probability = 0.01
    """The share of actions that are drawn evenly, in the end and when the agent is evaluated [zoo]; [dqn] has 0.1."""
    double: bool = False
    """The network chooses the next action, the target only values it (van Hasselt et al. 2016, arXiv 1509.06461)."""
    duelling: bool = False
    """Q = V + A - mean A, from the network's two heads (Wang et al. 2016, arXiv 1511.06581)."""
    prioritised: bool = False
    """Draw transitions in proportion to their last TD error (Schaul et al. 2016, arXiv 1511.05952)."""
    priority_exponent: Probability = 0.6
    """alpha: 0 = evenly (Schaul et al. 2016)."""
    importance_exponent: Probability = 0.4
    """beta at the start, which rises to 1 over the run: the weights make up for the draws (Schaul et al. 2016)."""

    def passes(self, num_envs: int) -> float:
        """See `AlgorithmSection`."""
        return super().passes(num_envs) * (5 / 4 if self.double else 1)


class SACSection(ReplaySection):
    """Soft actor-critic for discrete actions."""

    IMPLEMENTATION = "a2c.algorithms.sac:SAC"
    TITLE = "SAC, soft actor-critic, for discrete actions (Christodoulou 2019, arXiv 1910.07207)"
    BONUS = "entropy bonuses"
    METRICS = (
        Metric("policy_loss", "policy loss", form="+.4f"),
        Metric("critic_loss", "mean squared errors of both critics, added"),
        Metric("entropy", "entropy (nats)", form=".3f"),
        Metric("temperature", "temperature", "exploration", ".2g"),
        Metric("q_value", "mean Q of the actions taken", form="+.3f"),
        Metric("value_loss", "value loss, of the head that watch shows", plotted=False),
        Metric("replay_size", "transitions that can be sampled", "exploration", ",.0f", plotted=False),
        Metric("policy_grad_norm", "gradient norm of the policy", "optimizer"),
        Metric("grad_norm", "gradient norm of the critics before clipping", "optimizer"),
        Metric("learning_rate", "learning rate", "optimizer", ".2g", plotted=False),
    )
    SPACE: ClassVar[dict[str, Any]] = {
        **_OF_A_REPLAY,
        "algorithm.target_entropy": {"low": 0.1, "high": 0.98},
        "algorithm.polyak": {"low": 0.002, "high": 0.05, "log": True},
    }

    name: Literal["sac"] = "sac"
    learning_starts: NonNegativeInt = 20_000
    """Transitions that are collected before the first gradient step [sacd]."""
    batch_size: Annotated[int, Field(ge=1, le=65_536), NUMBER] = 64
    """Transitions of a gradient step [sacd]."""
    polyak: Annotated[float, Field(gt=0, le=1), NUMBER] = 0.005
    """Share of the critics in each step of the targets (Haarnoja et al. 2018, arXiv 1812.05905)."""
    target_entropy: Probability = 0.98
    """Of the policy, as a fraction of log A; the temperature is learned towards it [sacd]."""
    first_temperature: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 1.0
    """At the start of the run (Haarnoja et al. 2018, arXiv 1812.05905)."""
    value_loss_coef: Coefficient = 0.25
    """Weight of the fit of the value that `watch` shows, in the loss of the policy's network."""

    def passes(self, num_envs: int) -> float:
        """See `AlgorithmSection`: three networks learn, and five more times one only goes forward."""
        return 7 / 2 * super().passes(num_envs)


SECTIONS: dict[str, type[AlgorithmSection]] = {
    section.model_fields["name"].default: section
    for section in (A2CSection, PPOSection, A3CSection, TRPOSection, DQNSection, SACSection)
}
ALLOWED = ", ".join(SECTIONS) + " or module:Class"  # in words, for people
DEFAULT = "a2c"
STRONGEST = "ppo"  # with its presets, on games


def section_named(name: object) -> type[AlgorithmSection]:
    """The section of an algorithm: one of the table, or of a user's class `module:Name`.

    Raises:
        ValueError: if there is no such algorithm; it names the existing ones.
        UserError: if it is code that the user has not trusted.
    """
    if isinstance(name, str) and is_extension(name):
        return _own_section(name, find_extension(name, "algorithm"))
    if isinstance(name, str) and name in SECTIONS:
        return SECTIONS[name]
    hint = nearest(name, list(SECTIONS)) if isinstance(name, str) else ""
    raise ValueError(f"algorithm.name={shown(name)} is not allowed: it should be {ALLOWED}.{hint}")


def extended(name: str) -> str:
    """The algorithm of the table whose section a user's algorithm extends; DQN for another replay, else DEFAULT.

    Raises:
        UserError: as `section_named`.
    """
    names: dict[type, str] = {section: known for known, section in SECTIONS.items()} | {ReplaySection: "dqn"}
    return next((names[each] for each in section_named(name).__mro__ if each in names), DEFAULT)


def _own_section(name: str, algorithm: Any) -> type[AlgorithmSection]:
    """The section of a user's algorithm, with its `module:Name` as its name."""
    section = getattr(algorithm, "Section", None)
    if not (isinstance(section, type) and issubclass(section, AlgorithmSection)):
        raise UserError(f"{name} is no algorithm: it needs an attribute Section, a subclass of AlgorithmSection.")
    if not isinstance(getattr(section, "TITLE", None), str):
        raise UserError(f"{name}: its Section needs a TITLE, the name and the source of the algorithm.")
    _check_metrics(name, getattr(section, "METRICS", None))
    if not isinstance(section.PROMISES, Promises):
        raise UserError(f"{name}: the PROMISES of its Section have to be Promises(...) of a2c.algorithms.section.")
    own = section.model_fields.keys() - AlgorithmSection.model_fields.keys()
    if taken := sorted(own & (AlgorithmSection.__class_vars__ | vars(AlgorithmSection).keys())):
        raise UserError(
            f"{name}: {taken[0]} cannot be a setting, since every Section has it; leave its type out, or name the "
            "setting otherwise."
        )
    return _named_section(name, section)


def _check_metrics(name: str, metrics: Any) -> None:
    """Check the form of a user's METRICS."""
    if not (isinstance(metrics, tuple) and all(isinstance(metric, Metric) for metric in metrics)):
        raise UserError(f"{name}: its Section needs METRICS, a tuple of the Metric that an update reports.")
    names = [metric.name for metric in metrics]
    if twice := [each for each in names if names.count(each) > 1]:
        raise UserError(f"{name}: the METRICS of its Section have {twice[0]!r} twice; leave one out.")
    for metric in metrics:
        try:
            format(0.0, metric.form)
        except (TypeError, ValueError):
            raise UserError(
                f"{name}: {metric.name} of its METRICS has the form {shown(metric.form)}, which shows no number; give "
                "one such as '.3f'."
            ) from None


def _check_default(name: str, key: str, field: FieldInfo) -> None:
    """Check that the default of a setting is allowed, and the same after config.yaml has held it."""
    default = field.get_default(call_default_factory=True)
    of_field: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    kind: TypeAdapter[Any] = TypeAdapter(of_field)
    try:
        value = kind.validate_python(default)
    except ValidationError:
        text = f"{name}: the default of {key} of its Section is {shown(default)}"
        raise UserError(f"{text}, and should be {allowed(kind.json_schema())}.") from None
    try:
        held = bool(kind.validate_python(kind.dump_python(value, mode="json")) == value)
    except Exception:  # whatever a user's value raises
        held = False
    if not held:
        raise UserError(
            f"{name}: {key} of its Section is {shown(default)}, which config.yaml cannot hold; a setting is "
            "a number, a text, true or false, a list or a mapping with texts as keys."
        )


@cache
def _named_section(name: str, section: type[AlgorithmSection]) -> type[AlgorithmSection]:
    """The section under its name; its defaults are checked once, since every key that is set asks for the section."""
    for key, field in section.model_fields.items():
        if not field.is_required():
            with as_user_error(f"{name}: the default of {key} of its Section cannot be checked"):
                _check_default(name, key, field)
    named: Any = (Literal[name], name)
    own: type[AlgorithmSection] = create_model(section.__name__, __base__=section, name=named)
    own.IMPLEMENTATION = name
    return own
