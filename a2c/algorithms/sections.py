"""The configuration section of each algorithm, and the table of algorithms. No TensorFlow here.

The sources in brackets are those of `a2c.config.explain.SOURCES`.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, create_model

from a2c.config.messages import nearest, shown
from a2c.config.types import NUMBER, NonNegative, Probability, Section, UserError
from a2c.extensions import find_extension, is_extension


class Promises(NamedTuple):
    """Guarantees for every run of an algorithm; `train`, `resume`, `compare` and `doctor` tell which do not hold."""

    exact: bool = True  # the same seed gives the same bits, and so does a resumed run
    modes: bool = True  # eager and graph execution give the same bits
    workers: bool = True  # several workers make the same updates as one with all their environments


class Metric(NamedTuple):
    """A scalar that an update reports."""

    name: str  # in metrics.jsonl
    label: str  # for display, with its unit
    group: str = "losses"  # of TensorBoard's tags
    form: str = ".4f"  # in the live view
    plotted: bool = True


# the terms of every actor-critic loss, the fit of the values, and the metrics of every gradient step
LOSSES = (
    Metric("policy_loss", "policy loss", form="+.4f"),
    Metric("value_loss", "value loss"),
    Metric("entropy", "entropy (nats)", form=".3f"),
    Metric("total_loss", "total loss", plotted=False),
)
EXPLAINED_VARIANCE = Metric("explained_variance", "explained variance", form=".2f")
STEP = (
    Metric("grad_norm", "gradient norm before clipping", "optimizer"),
    Metric("learning_rate", "learning rate", "optimizer", ".2g", plotted=False),
)

Length = Annotated[int, Field(ge=1, le=4096), NUMBER]


class AlgorithmSection(Section):
    """The settings of every algorithm; each adds its own."""

    IMPLEMENTATION: ClassVar[str]  # module:Class of an `Algorithm`; imported when it is built
    TITLE: ClassVar[str]  # its name and source
    METRICS: ClassVar[tuple[Metric, ...]]  # reported by an update, in the order shown
    PROMISES: ClassVar[Promises] = Promises()
    SEPARATE_VALUE: ClassVar[bool] = False  # whether it needs model.separate_value

    name: str
    """The algorithm; it decides which other keys this section has."""
    rollout_length: Length = 5
    """T: steps of each environment that are collected before something is learned."""
    gamma: Probability = 0.99
    """The discount of one step [zoo], [a3c]."""

    @property
    def rollouts_per_update(self) -> int:
        """Rollouts of all environments in one update."""
        return 1

    @property
    def passes(self) -> float:
        """Forward and backward passes through the network per agent step in an update; `a2c bench` counts them."""
        return 1.0

    def groups(self, num_envs: int, cores: int) -> int | None:
        """Number of groups of equal size that the environments are split into; None = `parts_of` decides.

        Args:
            num_envs: B.
            cores: number of cores that the run may use.
        """
        return None

    def check(self, env_steps: int, rollout: str) -> None:
        """Raise ValueError if an update of `env_steps` agent steps, described by `rollout`, is impossible."""


class ActorCriticSection(AlgorithmSection):
    """The settings that A2C, PPO and A3C share."""

    gae_lambda: Probability = 1.0
    """Of GAE (Schulman et al. 2016); 1 = n-step returns [zoo]."""
    normalize_advantages: bool = False
    """Shift and scale the advantages of a batch to mean 0 and standard deviation 1 [zoo]."""
    value_loss_coef: NonNegative = 0.25
    """Weight of the mean squared error of the values [zoo]."""
    entropy_coef: NonNegative = 0.01
    """Weight of the policy's entropy, which the loss rewards [zoo], [a3c]."""

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
        if self.normalize_advantages and env_steps == 1:
            raise ValueError(
                f"algorithm.normalize_advantages=true needs a rollout of at least 2 steps, and it has 1 ({rollout}): "
                "a single advantage less its mean is always 0"
            )


class A2CSection(ActorCriticSection):
    """The A2C estimator and its loss."""

    IMPLEMENTATION = "a2c.algorithms.a2c:A2C"
    TITLE = "A2C, advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783, synchronous)"
    METRICS = (*LOSSES, EXPLAINED_VARIANCE, *STEP)

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

    name: Literal["ppo"] = "ppo"
    rollout_length: Length = 128
    """T: steps of each environment that are collected before something is learned [zoo]."""
    gae_lambda: Probability = 0.95
    """Of GAE (Schulman et al. 2016); 1 = n-step returns."""
    value_loss_coef: NonNegative = 0.25
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
    value_clip_range: Annotated[float, Field(gt=0), NUMBER] | None = None
    """The same for values; null = off: of no use (Andrychowicz et al. 2021)."""
    target_kl: Annotated[float, Field(gt=0), NUMBER] | None = None
    """An update ends early when approx_kl is above this; null = never."""

    @property
    def passes(self) -> float:
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

    name: Literal["trpo"] = "trpo"
    rollout_length: Length = 128
    """T: 2048 steps of 16 environments [sb3]."""
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

    @property
    def passes(self) -> float:
        """See `AlgorithmSection`: half of the network is the policy, and a Fisher product is a pass over some rows."""
        return (1 + (self.cg_iterations + 1) / self.fisher_stride + self.value_epochs) / 2

    def check(self, env_steps: int, rollout: str) -> None:
        """See `AlgorithmSection`."""
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
        # an actor has at least one environment
        super().check(self.rollout_length, f"algorithm.rollout_length={self.rollout_length} of one environment")


SECTIONS: dict[str, type[AlgorithmSection]] = {
    "a2c": A2CSection,
    "ppo": PPOSection,
    "a3c": A3CSection,
    "trpo": TRPOSection,
}
DEFAULT = "a2c"


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
    names = ", ".join(SECTIONS)
    raise ValueError(f"algorithm.name={shown(name)} is not allowed: it should be {names} or module:Class.{hint}")


def _own_section(name: str, algorithm: Any) -> type[AlgorithmSection]:
    """The section of a user's algorithm, with its `module:Name` as its name."""
    section = getattr(algorithm, "Section", None)
    if not (isinstance(section, type) and issubclass(section, AlgorithmSection)):
        raise UserError(f"{name} is no algorithm: it needs an attribute Section, a subclass of AlgorithmSection.")
    return _named_section(name, section)


@cache
def _named_section(name: str, section: type[AlgorithmSection]) -> type[AlgorithmSection]:
    named: Any = (Literal[name], name)
    own: type[AlgorithmSection] = create_model(section.__name__, __base__=section, name=named)
    own.IMPLEMENTATION = name
    return own
