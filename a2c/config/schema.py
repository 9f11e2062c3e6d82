"""The sections of a configuration: frozen models, one per owner, with the source of every default.

The sources in brackets are those of `a2c.config.explain.SOURCES`.
"""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, SerializeAsAny, model_validator

from a2c.algorithms.section import AlgorithmSection
from a2c.algorithms.sections import DEFAULT, A2CSection, section_named
from a2c.extensions import is_extension, wrapper_names
from a2c.games import atari_game, canonical_id, gymnasium_id, is_ram_id
from a2c.types import (
    LAYERS,
    NUMBER,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    Probability,
    Section,
    Size,
    Text,
    UserError,
)

WrapperEntry = Text | dict[Text, dict[Text, JsonValue]]
MOST_WRAPPERS = 16
MOST_GAMES = 10_000  # of an evaluation, which is a line of at most 1 MB


def _wrapper(entry: WrapperEntry) -> WrapperEntry:
    if len(wrapper_names([entry])) != 1 or (isinstance(entry, dict) and len(entry) != 1):
        raise ValueError("no wrapper")
    return entry


_Wrapper = Annotated[
    WrapperEntry,
    AfterValidator(_wrapper),
    Field(json_schema_extra={"enum": ["module:Name", "{module:Name: {argument: value}}"]}),
]


class EnvConfig(Section):
    """The environment and everything between it and the agent."""

    id: Text = "Pong"
    """An Atari game, a toy (Catch, Bandit, Chain), any Gymnasium id, or module:Id-v0."""
    backend: Literal["native", "wrappers"] = "native"
    """What plays Atari: ale-py's C++ environments, or Gymnasium's wrappers; they give the same pixels."""
    num_envs: Annotated[int, Field(ge=1, le=4096), NUMBER] = 16
    """Environments that are stepped together [zoo]."""
    threads: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0
    """Emulator threads; 0 = one per core."""
    sticky_action_probability: Probability = 0.0
    """That the emulator repeats the previous action [zoo]; 0.25 is Machado et al. 2018."""
    full_action_space: bool = False
    """All 18 actions instead of the game's own."""
    cut_on_life_loss: bool = True
    """A lost life ends the return, never the game [zoo], [oa]."""
    reward_clipping: Literal["auto", "sign", "none"] = "auto"
    """What the loss sees of rewards: their sign, or all; auto = sign on Atari [oa]."""
    frame_skip: Annotated[int, Field(ge=1, le=1000), NUMBER] = 4
    """Frames that an action is held [ale]."""
    frame_stack: Annotated[int, Field(ge=1, le=15), NUMBER] = 4
    """Screens that the network sees [ale]."""
    screen_size: Annotated[int, Field(ge=16, le=210), NUMBER] = 84
    """Pixels of each side of the screen that the network sees [ale]."""
    noop_max: Annotated[int, Field(ge=0, le=100_000), NUMBER] = 30
    """A game starts with 0 to noop_max - 1 idle frames, a FIRE counted [ale]."""
    fire_reset: bool = True
    """A game that has FIRE starts with it [oa]."""
    fire_on_life_loss: bool = True
    """In a game that has FIRE, the step after a lost life does it, whatever the agent chose [oa]."""
    reseed_after: NonNegativeInt = 10_000
    """Atari: after so many steps the next episode starts from a new seed; 0 = every episode does."""
    max_frames_per_episode: Annotated[int, Field(ge=1, le=2**31 - 1), NUMBER] = 108_000
    """A game is cut after so many: 30 minutes at 60 frames a second [ale]."""
    wrappers: Annotated[tuple[_Wrapper, ...], Field(max_length=MOST_WRAPPERS)] = ()
    """Gymnasium wrappers around each environment and inside its frame stack, the first innermost; scores stay raw."""

    @model_validator(mode="before")
    @classmethod
    def _wrappers_choose_the_backend(cls, values: Any) -> Any:
        return {"backend": "wrappers", **values} if isinstance(values, dict) and values.get("wrappers") else values

    @model_validator(mode="after")
    def _native_takes_no_wrappers(self) -> EnvConfig:
        if self.wrappers and self.backend == "native" and atari_game(self.id) is not None:
            raise ValueError("env.wrappers needs env.backend=wrappers, not native; set that, or leave env.backend out")
        return self

    @model_validator(mode="before")
    @classmethod
    def _as_the_id_says(cls, values: Any) -> Any:
        """Store the id in its one form; what a Gymnasium id means is the default of the keys that are not given."""
        if not isinstance(values, dict) or not isinstance(given := values.get("id"), str):
            return values
        if is_ram_id(given):
            game = canonical_id(given.replace("-ram", "", 1))
            raise UserError(
                f"env.id={given} shows the memory of the console, and only pictures are played here; use {game}, "
                f"ALE/{game}-v5 or {game}NoFrameskip-v4."
            )
        own = gymnasium_id(given)
        return {**(own.settings() if own else {}), **values, "id": canonical_id(given)}


NETWORKS = ("auto", "nature", "small", "impala", "mlp")
OWN_NETWORK = "module:builder"


def _network(name: str) -> str:
    if name not in NETWORKS and not is_extension(name):
        raise ValueError("no network")
    return name


class ModelConfig(Section):
    """The actor-critic network."""

    name: Annotated[str, AfterValidator(_network), Field(json_schema_extra={"enum": [*NETWORKS, OWN_NETWORK]})] = "auto"
    """The network; auto = nature for images, mlp for vectors."""
    pixels: Literal["scaled", "standardized", "motion"] = "scaled"
    """scaled = x / 255 [oa]; standardized = each observation less its mean, over its standard deviation; motion = the
    newest frame / 255 and, four times as strong, the changes from frame to frame; the channels must be frames."""
    conv_layers: Annotated[tuple[tuple[Size, Size, Size], ...], Field(max_length=LAYERS)] | None = None
    """(filters, kernel, stride) of each convolution of nature and small; null = their own, made for 84 x 84."""
    hidden_sizes: Annotated[tuple[Size, ...], Field(max_length=LAYERS)] = (64, 64)
    """Of the MLP."""
    separate_value: bool = False
    """The value function has its own layers, of the same sizes, up to the observations."""


class OptimizerConfig(Section):
    """The optimizer of the sum of the losses."""

    name: Literal["rmsprop", "adam"] = "rmsprop"
    """RMSProp as TF1 had it, see optimizer.py [oa]; or Adam (Kingma and Ba 2015)."""
    learning_rate: Annotated[float, Field(gt=0, le=1000), NUMBER] = 7e-4
    """At the start of the run [zoo]."""
    schedule: Literal["constant", "linear", "cooldown"] = "constant"
    """Of the learning rate [zoo]; linear falls to 0 over the run [oa], cooldown over its last quarter (Hägele et al.
    2024, arXiv 2405.18392)."""
    rho: Probability = 0.99
    """RMSProp's decay [zoo]."""
    beta_1: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.9
    """Adam's decay of the mean gradient."""
    beta_2: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.999
    """Adam's decay of the mean squared gradient."""
    epsilon: Annotated[float, Field(ge=1e-30, le=1e6), NUMBER] = 1e-5
    """Added to the root of the mean square (Adam), or to the mean square (RMSProp) [zoo], [oa]."""
    max_grad_norm: Annotated[float, Field(ge=1e-30, le=1e6), NUMBER] = 0.5
    """Gradients are scaled down to this global norm [zoo], [oa]."""
    on_nan: Literal["stop", "skip"] = "stop"
    """If loss or gradients are not finite: stop, or skip the update; it is applied in neither case."""


class RuntimeConfig(Section):
    """How the maths is executed."""

    mode: Literal["graph", "eager", "xla"] = "graph"
    """How the update is executed."""
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    """Of the network."""
    numerics: Literal["auto", "exact", "fast"] = "auto"
    """exact: eager and graph give the same bits; auto = exact wherever that is possible (not under XLA or on a GPU)."""
    threads: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0
    """TensorFlow's; 0 = one per core. Atari environments and batches are cut into as many parts, if it pays."""
    strategy: Literal["none", "mirrored", "multiworker"] = "none"
    """mirrored: the devices of this machine share the environments; multiworker: every worker has its own."""
    workers: Annotated[int, Field(ge=1, le=65_536), NUMBER] = 1
    """Of multiworker: the cluster says how many, and a run keeps them."""
    replicas: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0
    """Of each process; 0 = one for each GPU. Without GPUs, mirrored makes as many virtual devices."""
    cluster_wait_minutes: NonNegative = 10.0
    """How long to wait for all workers."""

    @model_validator(mode="after")
    def _xla_is_never_exact(self) -> RuntimeConfig:
        if self.mode == "xla" and self.numerics == "exact":
            raise ValueError(
                "runtime.numerics=exact is impossible with mode=xla, which fuses and reorders sums; "
                "use mode graph or eager, or numerics=fast"
            )
        return self

    @model_validator(mode="after")
    def _strategy_fits(self) -> RuntimeConfig:
        if self.strategy != "none" and self.mode == "xla":
            raise ValueError(
                f"runtime.strategy={self.strategy} does not go with mode=xla, which cannot hand gradients between "
                "devices here; use mode graph or eager"
            )
        if self.strategy != "multiworker" and self.workers > 1:
            raise ValueError(
                f"runtime.workers={self.workers} needs strategy=multiworker, not {self.strategy}; leave it out"
            )
        if self.strategy == "none" and self.replicas > 1:
            raise ValueError(f"runtime.replicas={self.replicas} needs strategy=mirrored; set that, or leave it out")
        return self


TrackerName = Literal["tensorboard", "wandb", "mlflow"]


def _once(names: tuple[TrackerName, ...]) -> tuple[TrackerName, ...]:
    """Each name once, in the order given."""
    return tuple(dict.fromkeys(names))


class LoggingConfig(Section):
    """The line of metrics."""

    every_updates: PositiveInt = 100
    """Updates between two lines of metrics."""
    trackers: Annotated[tuple[TrackerName, ...], Field(max_length=3), AfterValidator(_once)] = ("tensorboard",)
    """Where the lines can be looked at: TensorBoard, Weights & Biases, MLflow; see docs/seeing.md."""
    histograms: bool = False
    """Of all weights, in TensorBoard, at every line: some 0.03 s for the 1.7 M weights of nature."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_tensorboard_key(cls, values: Any) -> Any:
        """Read what older files have, `tensorboard: true`; trackers that are given win."""
        if not isinstance(values, dict) or not isinstance(values.get("tensorboard"), bool):
            return values
        rest = {key: value for key, value in values.items() if key != "tensorboard"}
        return {"trackers": ["tensorboard"] if values["tensorboard"] else [], **rest}

    @model_validator(mode="after")
    def _histograms_go_to_tensorboard(self) -> LoggingConfig:
        if self.histograms and "tensorboard" not in self.trackers:
            raise ValueError(
                "logging.histograms=true needs tensorboard in logging.trackers, which shows them; add that, or leave "
                "histograms out"
            )
        return self


class CheckpointConfig(Section):
    """What is saved to resume from."""

    every_updates: PositiveInt = 2_000
    """Updates between two checkpoints."""
    every_minutes: NonNegative = 10.0
    """Minutes between two checkpoints, if updates are slow; 0 = by updates alone."""
    keep: PositiveInt = 3
    """How many of the latest are kept; the best by episode return is kept too."""


class EvaluationConfig(Section):
    """Whole games played beside training, on separate environments."""

    every_env_steps: NonNegativeInt = 0
    """Agent steps between two evaluations; 0 = only at the end."""
    episodes: Annotated[int, Field(ge=0, le=MOST_GAMES), NUMBER] = 0
    """Whole games of an evaluation; 0 = no evaluations."""
    greedy: bool = False
    """Take the most probable action; the published A2C scores are of the sampled policy."""
    video: bool = True
    """Show the start of the median game in the trackers, if the environment has pictures."""


def _of_its_name(value: Any) -> Any:
    """The section of the algorithm that a mapping names."""
    return section_named(value.get("name", DEFAULT)).model_validate(value) if isinstance(value, dict) else value


AnyAlgorithm = Annotated[SerializeAsAny[AlgorithmSection], BeforeValidator(_of_its_name)]


class Config(Section):
    """Everything that decides a training run."""

    seed: NonNegativeInt = 0
    """Of everything random."""
    total_env_steps: PositiveInt = 10_000_000
    """Agent steps over all environments [zoo]; times frame_skip = frames."""
    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    algorithm: AnyAlgorithm = A2CSection()
    optimizer: OptimizerConfig = OptimizerConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    logging: LoggingConfig = LoggingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _holds_a_rollout(self) -> Config:
        rollouts = self.algorithm.rollouts_per_update
        if not (isinstance(rollouts, Integral) and rollouts > 0):  # of a user's own
            raise ValueError(
                f"algorithm.name={self.algorithm.name} has rollouts_per_update={rollouts}, which should be a whole "
                "number of at least 1"
            )
        steps = self.env_steps_per_update
        rollout = f"algorithm.rollout_length={self.algorithm.rollout_length} x env.num_envs={self.env.num_envs}"
        if rollouts > 1:
            rollout += f" x {rollouts} rollouts"
        if self.runtime.workers > 1:
            rollout += f" x runtime.workers={self.runtime.workers}"
        if self.runtime.replicas > 1 and self.env.num_envs % self.runtime.replicas:
            raise ValueError(
                f"env.num_envs={self.env.num_envs} cannot be shared evenly by runtime.replicas={self.runtime.replicas};"
                " give a multiple of it"
            )
        if self.total_env_steps < steps:
            raise ValueError(
                f"total_env_steps={self.total_env_steps} is less than one rollout of {steps} steps ({rollout}); "
                f"give at least {steps}, or make the rollout smaller"
            )
        self.algorithm.check(steps, rollout)
        return self

    @model_validator(mode="after")
    def _suits_the_algorithm(self) -> Config:
        name, strategy = self.algorithm.name, self.runtime.strategy
        if self.algorithm.SEPARATE_VALUE and not self.model.separate_value:
            raise ValueError(
                f"algorithm.name={name} trains the policy and the value function apart from each other; "
                "set model.separate_value=true"
            )
        if strategy != "none" and not self.algorithm.PROMISES.workers:
            raise ValueError(
                f"runtime.strategy={strategy} does not go with algorithm.name={name}, which learns on one device; "
                "use runtime.strategy=none"
            )
        return self

    @property
    def env_steps_per_update(self) -> int:
        """Agent steps over all workers: rollouts x T x B x workers."""
        algorithm = self.algorithm
        return algorithm.rollouts_per_update * algorithm.rollout_length * self.env.num_envs * self.runtime.workers

    @property
    def total_updates(self) -> int:
        """Updates until at least total_env_steps are done: whole rollouts only."""
        return -(-self.total_env_steps // self.env_steps_per_update)


def sections(algorithm: type[AlgorithmSection] = A2CSection) -> dict[str, type[Section]]:
    """The sections of a configuration by name, including that of one algorithm."""
    fields: dict[str, Any] = {name: field.annotation for name, field in Config.model_fields.items()}
    fields["algorithm"] = algorithm
    return {name: kind for name, kind in fields.items() if isinstance(kind, type) and issubclass(kind, Section)}


def all_keys(algorithm: type[AlgorithmSection] = A2CSection) -> list[str]:
    """Every dotted key that `--set` knows, sorted."""
    found = sections(algorithm)
    keys = [f"{name}.{key}" for name, section in found.items() for key in section.model_fields]
    return sorted([*keys, *(name for name in Config.model_fields if name not in found)])
