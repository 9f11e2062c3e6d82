"""Configuration: frozen models, one per owner; presets and YAML files; `--set section.key=value`.

A value is looked up in this order, the last one found wins: the default below (the classic recipe, named
`atari`), the preset or file, the command line's flags, `--set`.

Sources of the defaults: [zoo] DLR-RM/rl-baselines3-zoo hyperparams/a2c.yml, `atari`; [oa] openai/baselines
a2c; [a3c] Mnih et al. 2016, arXiv 1602.01783; [ale] ALE's AtariPreprocessing as Gymnasium documents it.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1, le=65_536)]  # of what memory is allocated for
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]


class UserError(Exception):
    """A mistake of the user's, told in one sentence: what was wrong, what is allowed, what to do."""


class Section(BaseModel):
    """Base of all configuration models: frozen, strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvConfig(Section):
    """The environment and everything between it and the agent."""

    id: str = "Pong"  # an Atari game, a toy (Catch, Bandit, Chain), any Gymnasium id, or module:Id-v0
    backend: Literal["native", "wrappers"] = "native"  # ale-py's C++ vector env, or Gymnasium's wrapper stack
    num_envs: Annotated[int, Field(ge=1, le=4096)] = 16  # [zoo]
    threads: Annotated[int, Field(ge=0, le=1024)] = 0  # emulator threads; 0 = one per core
    sticky_action_probability: Probability = 0.0  # [zoo]; 0.25 is Machado et al. 2018, see configs/machado.yaml
    full_action_space: bool = False  # all 18 actions instead of the game's own
    cut_on_life_loss: bool = True  # [zoo], [oa]: a lost life ends the return, never the game
    reward_clipping: Literal["auto", "sign", "none"] = "auto"  # for the loss only; auto = sign on Atari [oa]
    frame_skip: Annotated[int, Field(ge=1, le=1000)] = 4  # [ale]
    frame_stack: Annotated[int, Field(ge=1, le=15)] = 4  # [ale]
    screen_size: Annotated[int, Field(ge=16, le=210)] = 84  # [ale]; pixels of each side
    noop_max: Annotated[int, Field(ge=0, le=100_000)] = 30  # [ale]
    fire_reset: bool = True  # [oa]
    # Atari: after this many steps an environment's next episode starts on a seed of its own; 0 = every episode does.
    # To resume, all since the last seed is played again (half of it on average); a seed costs 65 ms of emulation.
    reseed_after: NonNegativeInt = 10_000
    max_frames_per_episode: Annotated[int, Field(ge=1, le=2**31 - 1)] = (
        108_000  # [ale]: 30 minutes at 60 frames a second
    )


class ModelConfig(Section):
    """The actor-critic network."""

    # auto = nature for images, mlp for vectors
    name: Literal["auto", "nature", "small", "impala", "mlp"] = "auto"
    # scaled = x / 255 [oa]; standardized = each observation less its mean, over its standard deviation, which
    # makes a ball of two pixels stand out from its background: Pong takes off in a third of the steps
    pixels: Literal["scaled", "standardized"] = "scaled"
    # (filters, kernel, stride) of each convolution of nature and small; None = their own, made for 84 x 84
    conv_layers: tuple[tuple[Size, Size, Size], ...] | None = None
    hidden_sizes: tuple[Size, ...] = (64, 64)  # of the MLP


class AlgorithmConfig(Section):
    """The A2C estimator and its loss."""

    rollout_length: Annotated[int, Field(ge=1, le=4096)] = 5  # [zoo], [a3c]
    gamma: Probability = 0.99  # [zoo], [a3c]
    gae_lambda: Probability = 1.0  # 1 = n-step returns [zoo]
    normalize_advantages: bool = False  # [zoo]
    value_loss_coef: NonNegative = 0.25  # [zoo], times the mean squared error
    entropy_coef: NonNegative = 0.01  # [zoo], [a3c]


class OptimizerConfig(Section):
    """The optimizer of the sum of the losses."""

    name: Literal["rmsprop", "adam"] = "rmsprop"  # RMSProp as TF1 had it, see optimizer.py [oa]
    learning_rate: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] = 7e-4  # [zoo]
    schedule: Literal["constant", "linear"] = "constant"  # [zoo]; linear falls to 0 over the run [oa]
    rho: Probability = 0.99  # RMSProp's decay [zoo]
    beta_1: Annotated[float, Field(ge=0, lt=1)] = 0.9  # Adam (Kingma and Ba 2015)
    beta_2: Annotated[float, Field(ge=0, lt=1)] = 0.999  # Adam
    epsilon: Positive = 1e-5  # [zoo], [oa]
    max_grad_norm: Positive = 0.5  # [zoo], [oa]: global norm
    # what to do where the loss or the gradients are not finite; the update is applied in neither case
    on_nan: Literal["stop", "skip"] = "stop"


class RuntimeConfig(Section):
    """How the maths is executed. Nothing here changes what is computed beyond rounding."""

    mode: Literal["graph", "eager", "xla"] = "graph"
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    # exact: eager and graph give the same bits; auto = exact wherever that is possible (not under XLA or on a GPU)
    numerics: Literal["auto", "exact", "fast"] = "auto"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0  # TensorFlow's intra-op threads; 0 = one per core

    @model_validator(mode="after")
    def _xla_is_never_exact(self) -> RuntimeConfig:
        if self.mode == "xla" and self.numerics == "exact":
            raise ValueError(
                "runtime.numerics=exact is impossible with mode=xla, which fuses and reorders sums; "
                "use mode graph or eager, or numerics=fast"
            )
        return self


class LoggingConfig(Section):
    """The line of metrics."""

    every_updates: PositiveInt = 100
    tensorboard: bool = True


class CheckpointConfig(Section):
    """What is kept to go on from."""

    every_updates: PositiveInt = 2_000
    every_minutes: NonNegative = 10.0  # as well, where updates are slow; 0 = by updates alone
    keep: PositiveInt = 3  # the last N; the best by episode return is kept besides


class EvaluationConfig(Section):
    """Whole games played beside training, on environments of their own."""

    every_updates: NonNegativeInt = 0  # 0 = only at the end
    episodes: NonNegativeInt = 0  # 0 = none
    greedy: bool = False  # the published A2C scores are of the sampled policy


class Config(Section):
    """Everything that decides a training run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    total_env_steps: PositiveInt = 10_000_000  # agent steps over all environments [zoo]; times frame_skip = frames
    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    logging: LoggingConfig = LoggingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def env_steps_per_update(self) -> int:
        """T x B."""
        return self.algorithm.rollout_length * self.env.num_envs

    @property
    def total_updates(self) -> int:
        """Updates until at least total_env_steps are done: whole rollouts only."""
        return -(-self.total_env_steps // self.env_steps_per_update)


# --- files, presets and overrides ---------------------------------------------------------------------------


def load_config(
    *,
    config: str | Path | None = None,
    env_id: str | None = None,
    overrides: dict[str, Any] | None = None,
    assignments: tuple[str, ...] | list[str] = (),
) -> tuple[Config, str]:
    """Build the configuration of a run.

    Args:
        config: a preset's name or a YAML file; without it the preset of the game's own name is used where
            there is one, else the classic recipe `atari`.
        env_id: the environment; wins over the file's.
        overrides: dotted keys to values, from flags; None values are ignored.
        assignments: `section.key=value` texts; they win over everything else.

    Returns:
        The configuration, and the name of the preset or file it came from.

    Raises:
        UserError: for an unknown preset, file, key or value.
    """
    flags = {key: value for key, value in (overrides or {}).items() if value is not None}
    if env_id is not None:
        flags["env.id"] = env_id
    assigned = dict(parse_assignment(text) for text in assignments)
    wanted_env = assigned.get("env.id", flags.get("env.id"))
    source, values = _read_source(config, wanted_env)
    for key, value in {**flags, **assigned}.items():
        _assign(values, key, value)
    return build_config(values, where=source), source


def build_config(values: Any, *, where: str) -> Config:
    """Validate a nested mapping into a Config; the first mistake becomes a UserError that names its key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{where}: {_explain(error)}") from None


def dump_config(config: Config) -> dict[str, Any]:
    """The configuration as plain nested values, every default written out."""
    return config.model_dump(mode="json")


def dotted(values: dict[str, Any]) -> dict[str, Any]:
    """The values of sections, as of `dump_config`, under the dotted keys of `lookup`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is read as YAML, so `1e-3`, `true` and `[64, 64]` mean what they say."""
    key, separator, raw = text.partition("=")
    key = key.strip()
    if not separator or not key:
        raise UserError(
            f"--set {text!r} is not of the form section.key=value, for example optimizer.learning_rate=1e-3."
        )
    try:
        value = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"--set {key}: the value {raw[:80]!r} cannot be read as YAML; quote it.") from None
    return key, raw if isinstance(value, str) or value is None else value


def lookup(config: Config, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def preset_names() -> list[str]:
    """The presets that ship with the package, sorted."""
    return sorted(path.stem for path in _presets_folder().glob("*.yaml"))


def all_keys() -> list[str]:
    """Every dotted key that `--set` knows, sorted."""
    keys = []
    for name, field in Config.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            keys += [f"{name}.{key}" for key in section.model_fields]
        else:
            keys.append(name)
    return sorted(keys)


def env_slug(env_id: str) -> str:
    """`ALE/SpaceInvaders-v5` -> `space_invaders`, `Pong` -> `pong`: for folder and preset names."""
    name = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", env_id.rsplit("/", 1)[-1].rsplit(":", 1)[-1])
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.sub(r"[^a-z0-9_.]+", "-", name).strip("-") or "env"


def nearest(word: str, allowed: list[str]) -> str:
    """` Did you mean ...?` with the nearest matches, or nothing."""
    lowered = {name.lower(): name for name in allowed}
    matches = difflib.get_close_matches(word.lower(), lowered, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(lowered[match] for match in matches)}?" if matches else ""


def _presets_folder() -> Path:
    here = Path(__file__).resolve().parent
    installed = here / "configs"  # in a wheel
    return installed if installed.is_dir() else here.parent / "configs"  # in a checkout


def _read_source(config: str | Path | None, env_id: str | None) -> tuple[str, dict[str, Any]]:
    if config is None:
        own = env_slug(str(EnvConfig().id if env_id is None else env_id))
        config = own if own in preset_names() else "atari"
    text = str(config)
    if text in preset_names():
        return text, read_config_file(_presets_folder() / f"{text}.yaml")
    path = Path(text)
    if path.is_dir():
        raise UserError(
            f"--config {text} is a folder; name a YAML file, or use `a2c resume {text}` to go on with a run."
        )
    if not path.is_file():
        names = preset_names()
        raise UserError(f"There is no preset or file {text!r}; presets are {', '.join(names)}.{nearest(text, names)}")
    return text, read_config_file(path)


def read_config_file(path: Path) -> dict[str, Any]:
    """The nested values of a YAML configuration file; a run's `provenance` section is left out."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error.__class__.__name__}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        place = "" if line is None else f" at line {line + 1}"
        raise UserError(f"{path} is not valid YAML{place}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(
            f"{path} must hold sections and keys such as `optimizer:` and `seed:`, not a {type(values).__name__}."
        )
    values.pop("provenance", None)
    return values


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    if key not in all_keys():
        raise UserError(f"There is no key {key!r}.{nearest(key, all_keys())} See the README for all keys.")
    *sections, leaf = key.split(".")
    for section in sections:
        inner = values.get(section)
        inner = values[section] = {} if inner is None else inner
        if not isinstance(inner, dict):
            raise UserError(f"The section {section!r} of the configuration must hold keys, not {inner!r}.")
        values = inner
    values[leaf] = value


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"there is no key {key!r}.{nearest(key, all_keys())}"
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if first["type"] == "value_error":
        return f"{message}."
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{key}={first['input']!r} is not allowed: it should be {message}.{more}"
