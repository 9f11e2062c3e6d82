"""Configuration: frozen models, one per owner; presets and YAML files; `--set section.key=value`.

A value is looked up in this order, the last one found wins: the default below (the classic recipe, named
`atari`), the preset or file, the command line's flags, `--set`.

Sources of the defaults: [zoo] DLR-RM/rl-baselines3-zoo hyperparams/a2c.yml, `atari`; [oa] openai/baselines
a2c; [a3c] Mnih et al. 2016, arXiv 1602.01783; [ale] ALE's AtariPreprocessing as Gymnasium documents it.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

# The version of what the keys mean, which a run writes into its config.yaml, and what each version changed.
SCHEMA = 2
CHANGES = {
    2: "an Atari environment is seeded after env.reseed_after steps, no longer at every episode, and "
    "evaluation.every_updates became evaluation.every_env_steps",
}


class UserError(Exception):
    """A mistake of the user's, told in one sentence: what was wrong, what is allowed, what to do."""

    exit_code = 2


class CrashError(UserError):
    """No mistake of the user's: the program, or an environment, failed; told in one sentence all the same."""

    exit_code = 1


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("not a number")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():  # names end up on screens and in the names of folders
        raise ValueError("not printable")
    return value


NUMBER = BeforeValidator(_no_truth_value)
Text = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**63 - 1), NUMBER]
PositiveInt = Annotated[int, Field(ge=1, le=2**63 - 1), NUMBER]
Size = Annotated[int, Field(ge=1, le=65_536), NUMBER]  # of what memory is allocated for
NonNegative = Annotated[float, Field(ge=0), NUMBER]
Probability = Annotated[float, Field(ge=0, le=1), NUMBER]
LAYERS = 64  # the most that a network may have of one kind


class Section(BaseModel):
    """Base of all configuration models: frozen, strict about unknown keys, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EnvConfig(Section):
    """The environment and everything between it and the agent."""

    id: Text = "Pong"  # an Atari game, a toy (Catch, Bandit, Chain), any Gymnasium id, or module:Id-v0
    backend: Literal["native", "wrappers"] = "native"  # ale-py's C++ vector env, or Gymnasium's wrapper stack
    num_envs: Annotated[int, Field(ge=1, le=4096), NUMBER] = 16  # [zoo]
    threads: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0  # emulator threads; 0 = one per core
    sticky_action_probability: Probability = 0.0  # [zoo]; 0.25 is Machado et al. 2018, see configs/machado.yaml
    full_action_space: bool = False  # all 18 actions instead of the game's own
    cut_on_life_loss: bool = True  # [zoo], [oa]: a lost life ends the return, never the game
    reward_clipping: Literal["auto", "sign", "none"] = "auto"  # for the loss only; auto = sign on Atari [oa]
    frame_skip: Annotated[int, Field(ge=1, le=1000), NUMBER] = 4  # [ale]
    frame_stack: Annotated[int, Field(ge=1, le=15), NUMBER] = 4  # [ale]
    screen_size: Annotated[int, Field(ge=16, le=210), NUMBER] = 84  # [ale]; pixels of each side
    noop_max: Annotated[int, Field(ge=0, le=100_000), NUMBER] = 30  # [ale]
    fire_reset: bool = True  # [oa]
    # Atari: after this many steps an environment's next episode starts on a seed of its own; 0 = every episode does.
    # To resume, all since the last seed is played again (half of it on average); a seed costs 65 ms of emulation.
    reseed_after: NonNegativeInt = 10_000
    max_frames_per_episode: Annotated[int, Field(ge=1, le=2**31 - 1), NUMBER] = (
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
    conv_layers: Annotated[tuple[tuple[Size, Size, Size], ...], Field(max_length=LAYERS)] | None = None
    hidden_sizes: Annotated[tuple[Size, ...], Field(max_length=LAYERS)] = (64, 64)  # of the MLP


class AlgorithmConfig(Section):
    """The A2C estimator and its loss."""

    rollout_length: Annotated[int, Field(ge=1, le=4096), NUMBER] = 5  # [zoo], [a3c]
    gamma: Probability = 0.99  # [zoo], [a3c]
    gae_lambda: Probability = 1.0  # 1 = n-step returns [zoo]
    normalize_advantages: bool = False  # [zoo]
    value_loss_coef: NonNegative = 0.25  # [zoo], times the mean squared error
    entropy_coef: NonNegative = 0.01  # [zoo], [a3c]


class OptimizerConfig(Section):
    """The optimizer of the sum of the losses."""

    name: Literal["rmsprop", "adam"] = "rmsprop"  # RMSProp as TF1 had it, see optimizer.py [oa]
    learning_rate: Annotated[float, Field(gt=0, le=1000), NUMBER] = 7e-4  # [zoo]
    schedule: Literal["constant", "linear"] = "constant"  # [zoo]; linear falls to 0 over the run [oa]
    rho: Probability = 0.99  # RMSProp's decay [zoo]
    beta_1: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.9  # Adam (Kingma and Ba 2015)
    beta_2: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.999  # Adam
    # bounded, so that what is applied is finite in float32 where the gradients are
    epsilon: Annotated[float, Field(ge=1e-30, le=1e6), NUMBER] = 1e-5  # [zoo], [oa]
    max_grad_norm: Annotated[float, Field(ge=1e-30, le=1e6), NUMBER] = 0.5  # [zoo], [oa]: global norm
    # what to do where the loss or the gradients are not finite; the update is applied in neither case
    on_nan: Literal["stop", "skip"] = "stop"


class RuntimeConfig(Section):
    """How the maths is executed. Nothing here changes what is computed beyond rounding."""

    mode: Literal["graph", "eager", "xla"] = "graph"
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    # exact: eager and graph give the same bits; auto = exact wherever that is possible (not under XLA or on a GPU)
    numerics: Literal["auto", "exact", "fast"] = "auto"
    # TensorFlow's, 0 = one per core; Atari environments and batches are cut into as many parts, where it pays
    threads: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0
    # mirrored: the devices of this machine share the environments; multiworker: every worker of a cluster has its own
    strategy: Literal["none", "mirrored", "multiworker"] = "none"
    workers: Annotated[int, Field(ge=1, le=65_536), NUMBER] = 1  # of multiworker: the cluster says it, a run keeps it
    # of each process; 0 = one for each GPU. Without any, mirrored tries it out on virtual devices of the processor.
    replicas: Annotated[int, Field(ge=0, le=1024), NUMBER] = 0
    cluster_wait_minutes: NonNegative = 10.0  # for all workers to be there

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


class LoggingConfig(Section):
    """The line of metrics."""

    every_updates: PositiveInt = 100
    tensorboard: bool = True
    # of all weights, in TensorBoard, at every such line: some 0.03 s for the 1.7 M weights of nature
    histograms: bool = False

    @model_validator(mode="after")
    def _histograms_go_to_tensorboard(self) -> LoggingConfig:
        if self.histograms and not self.tensorboard:
            raise ValueError(
                "logging.histograms=true needs logging.tensorboard=true, which shows them; set that, or leave it out"
            )
        return self


class CheckpointConfig(Section):
    """What is kept to go on from."""

    every_updates: PositiveInt = 2_000
    every_minutes: NonNegative = 10.0  # as well, where updates are slow; 0 = by updates alone
    keep: PositiveInt = 3  # the last N; the best by episode return is kept besides


class EvaluationConfig(Section):
    """Whole games played beside training, on environments of their own."""

    every_env_steps: NonNegativeInt = 0  # 0 = only at the end
    episodes: NonNegativeInt = 0  # 0 = none
    greedy: bool = False  # the published A2C scores are of the sampled policy
    video: bool = True  # the start of the median game for TensorBoard, where the environment has pictures


class Config(Section):
    """Everything that decides a training run."""

    seed: NonNegativeInt = 0
    total_env_steps: PositiveInt = 10_000_000  # agent steps over all environments [zoo]; times frame_skip = frames
    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    logging: LoggingConfig = LoggingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _holds_a_rollout(self) -> Config:
        steps = self.env_steps_per_update
        rollout = f"algorithm.rollout_length={self.algorithm.rollout_length} x env.num_envs={self.env.num_envs}"
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
        if self.algorithm.normalize_advantages and steps == 1:
            raise ValueError(
                f"algorithm.normalize_advantages=true needs a rollout of at least 2 steps, and it has 1 ({rollout}): "
                "a single advantage less its mean is always 0"
            )
        return self

    @property
    def env_steps_per_update(self) -> int:
        """T x B, over all workers."""
        return self.algorithm.rollout_length * self.env.num_envs * self.runtime.workers

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
        raise UserError(f"{where}: {_explain(error, values)}") from None


def changed(config: Config, changes: dict[str, Any]) -> Config:
    """A configuration with other values under dotted keys, validated like any other; None leaves a key as it is.

    Raises:
        UserError: for an unknown key or a value that is not allowed.
    """
    values = dump_config(config)
    for key, value in changes.items():
        if value is not None:
            _assign(values, key, value)
    return build_config(values, where="the options given")


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
            f"--set {shown(text)} is not of the form section.key=value, for example optimizer.learning_rate=1e-3."
        )
    try:
        value = yaml.load(raw, _Loader)
    except Exception:  # whatever PyYAML raises on hostile text
        raise UserError(f"--set {shown(key)}: the value {shown(raw)} cannot be read as YAML; quote it.") from None
    return key, raw if isinstance(value, str) or not raw.strip() else value


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
    sections = _sections()
    keys = [f"{name}.{key}" for name, section in sections.items() for key in section.model_fields]
    return sorted([*keys, *(name for name in Config.model_fields if name not in sections)])


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


def shown(value: Any) -> str:
    """A value for a sentence: as `repr` writes it, on one line and cut where it is long, whatever it holds."""
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _Short(reprlib.Repr):
    """`repr` that never builds what `shown` would cut: a few lines of YAML can hold more than fits in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, 80, 80

    def repr_int(self, x: int, level: int) -> str:
        """Python refuses to write integers of thousands of digits."""
        return repr(x) if x.bit_length() < 200 else f"an integer of {x.bit_length()} bits"

    def repr_bool(self, x: bool, level: int) -> str:
        """As it was typed, in YAML."""
        return "true" if x else "false"

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: N802 (reprlib looks for this name)
        """As it was typed, in YAML."""
        return "null"


_SHORT = _Short()


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is given twice is a mistake, and 010 and 1:30 are not taken for 8 and 90."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse a second value for a key; what `<<` brings may be overridden."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_INT = "tag:yaml.org,2002:int"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _INT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _INT, re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$"), list("-+0123456789")
)


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
        raise UserError(
            f"There is no preset or file {shown(text)}; presets are {', '.join(names)}.{nearest(text, names)}"
        )
    return text, read_config_file(path)


def read_config_file(path: Path) -> dict[str, Any]:
    """The nested values of a YAML configuration file; a run's `provenance` and `schema` are left out.

    Raises:
        UserError: if it cannot be read, or is of another schema than `SCHEMA`; one without is taken for today's.
    """
    values = _read_yaml(path)
    values.pop("provenance", None)
    _check_schema(values.pop("schema", SCHEMA), path)
    return values


def read_provenance(path: Path) -> dict[str, str]:
    """The versions and the commit that a run noted in its config.yaml; empty where it notes none.

    Raises:
        UserError: if it cannot be read.
    """
    provenance = _read_yaml(path).get("provenance")
    return {str(name): str(value) for name, value in provenance.items()} if isinstance(provenance, dict) else {}


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error.__class__.__name__}.") from None
    except Exception as error:  # whatever PyYAML raises on hostile text
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = "" if mark is None else f" at line {mark.line + 1}"
        reason = "" if problem is None else f": {shown(problem)}"
        raise UserError(f"{path} is not valid YAML{place}{reason}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(
            f"{path} must hold sections and keys such as `optimizer:` and `seed:`, not a {type(values).__name__}."
        )
    return values


def _check_schema(schema: Any, path: Path) -> None:
    if type(schema) is not int or schema < 1:
        raise UserError(f"{path}: schema={shown(schema)} is not allowed: it should be a whole number, {SCHEMA} today.")
    if schema > SCHEMA:
        raise UserError(f"{path} is of schema {shown(schema)}, this version of a2c reads schema {SCHEMA}; update a2c.")
    if schema < SCHEMA:
        changes = "; ".join(text for version, text in CHANGES.items() if version > schema)
        raise UserError(
            f"{path} is of schema {schema}, and keys have changed their meaning since: {changes}; remove the line "
            f"`schema: {schema}` to use it with today's meaning."
        )


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    if key in _sections():
        raise UserError(f"{key} is a section; set one of its keys, such as {_keys_of(key)}.")
    if key not in all_keys():
        raise UserError(_no_such_key(key, "There"))
    *sections, leaf = key.split(".")
    for section in sections:
        inner = values.get(section)
        inner = values[section] = {} if inner is None else inner
        if not isinstance(inner, dict):
            raise UserError(f"{_no_section(section, inner)}.")
        values = inner
    values[leaf] = value


def _sections() -> dict[str, type[Section]]:
    fields = {name: field.annotation for name, field in Config.model_fields.items()}
    return {name: kind for name, kind in fields.items() if isinstance(kind, type) and issubclass(kind, Section)}


def _explain(error: ValidationError, values: Any) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"][:2])  # beyond are places in a list
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if key in all_keys():
        value = _value_at(values, key)
        return f"{key}={shown(value)} is not allowed: it should be {_allowed(_schema_of(key))}.{more}"
    if first["type"] == "value_error":  # of a section or of all: keys that contradict each other
        return f"{first['msg'].removeprefix('Value error, ')}.{more}"
    if key in _sections():
        return f"{_no_section(key, values[key])}.{more}"
    if not key:
        return f"a configuration must hold sections and keys such as optimizer and seed, not {shown(values)}."
    return _no_such_key(key, "there") + more


def _value_at(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values[part]
    return values


def _schema_of(key: str) -> dict[str, Any]:
    section, _, leaf = key.rpartition(".")
    owner = _sections()[section] if section else Config
    schema: dict[str, Any] = owner.model_json_schema()["properties"][leaf]
    return schema


def _no_such_key(key: str, there: str) -> str:
    return f"{there} is no key {shown(key)}.{nearest(key[:80], all_keys())} See the README for all keys."


def _no_section(name: str, value: Any) -> str:
    return f"{name}={shown(value)} is not allowed: it should be a section with keys such as {_keys_of(name)}"


def _keys_of(section: str) -> str:
    return " and ".join(f"{section}.{key}" for key in list(_sections()[section].model_fields)[:2])


_KINDS = {"integer": "a whole number", "number": "a finite number", "boolean": "true or false", "null": "null"}
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "to below"}


def _allowed(schema: dict[str, Any]) -> str:
    """What a JSON schema of pydantic's allows, in words."""
    if "enum" in schema:
        *others, last = schema["enum"]
        return f"{', '.join(others)} or {last}"
    if "anyOf" in schema:
        return " or ".join(_allowed(option) for option in reversed(schema["anyOf"]))  # null first, it is short
    kind = schema["type"]
    if kind == "string":
        return f"a text of at most {schema['maxLength']} printable characters"
    if kind == "array":
        items = schema.get("prefixItems")
        count, item = (f"{len(items)}", items[0]) if items else (f"at most {schema['maxItems']}", schema["items"])
        return f"a list of {count}, each {_allowed(item)}"
    bounds = "".join(f" {word} {schema[name]}" for name, word in _BOUNDS.items() if name in schema)
    return _KINDS[kind] + bounds
