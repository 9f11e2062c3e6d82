"""The options that are long or shared by several commands, and their shell completion."""

from __future__ import annotations

import math
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from a2c.algorithms.sections import SECTIONS, STRONGEST
from a2c.config import MOST_GAMES, UserError, keys_of_all_algorithms, preset_names, shown
from a2c.extensions import is_extension, trust
from a2c.games import TOYS, game_names
from a2c.run.files import try_writing

OnNanChoice = Literal["stop", "skip"]
Protocol = Literal["deepmind", "machado"]
Mode = Literal["graph", "eager", "xla"]
StrategyChoice = Literal["none", "mirrored", "multiworker"]


def complete_env(incomplete: str) -> list[str]:
    """Shell completion of games and toys."""
    return [name for name in [*game_names(), *TOYS] if name.lower().startswith(incomplete.lower())]


def complete_config(incomplete: str) -> list[str]:
    """Shell completion of presets."""
    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_set(incomplete: str) -> list[str]:
    """Shell completion of keys."""
    return [f"{key}=" for key in keys_of_all_algorithms() if key.startswith(incomplete)]


def complete_algorithm(incomplete: str) -> list[str]:
    """Shell completion of algorithms."""
    return [name for name in SECTIONS if name.startswith(incomplete)]


def number_of_steps(text: str | int) -> int:
    """Parse `2000000`, `2_000_000`, `2e6` or `2M`."""
    found = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:[eE]\d{1,2})?)([kKM]?)", str(text).strip())
    number = Decimal(found[1].replace("_", "")) * {"": 1, "k": 1000, "K": 1000, "M": 10**6}[found[2]] if found else 0
    if number != int(number) or not 1 <= number < 2**63:
        raise typer.BadParameter(
            f"{shown(text)} is not allowed: it should be a whole number from 1, such as 500k or 2M"
        )
    return int(number)


def score(text: str | float) -> float:
    """Parse a finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise typer.BadParameter(f"{shown(text)} is not allowed: it should be a finite number, such as 18 or -0.5")
    return number


def duration(text: str | float) -> float:
    """Parse a finite number that is not negative."""
    number = score(text)
    if number < 0:
        raise typer.BadParameter(f"{shown(text)} is not allowed: it should be 0 or more")
    return number


def steps_option(help_: str) -> Any:
    """The option --steps."""
    return typer.Option("--steps", parser=number_of_steps, metavar="N", help=help_)


Steps = Annotated[int | None, steps_option("Agent steps over all environments, such as 500k or 2M.")]
NewTotal = Annotated[int | None, steps_option("A new total of agent steps. Default: as started.")]
TimedSteps = Annotated[
    int | None, steps_option("Agent steps to time. Default: 40,000, or 10 updates if they are more.")
]
TrustedEnv = Annotated[
    str | None,
    typer.Option("--env", help="Its environment; name it if it is module:Id, since that runs code."),
]
TrustedAlgorithm = Annotated[
    str | None,
    typer.Option("--algorithm", help="Its algorithm; name it if it is module:Name, since that runs code."),
]
TrustedModel = Annotated[
    str | None, typer.Option("--model", help="Its network; name it if it is module:builder, since that runs code.")
]
TrustedWrappers = Annotated[
    list[str] | None,
    typer.Option("--wrapper", help="Its wrapper, module:Name; name each, since it runs code."),
]
StopAt = Annotated[
    float | None,
    typer.Option("--stop-at", parser=score, metavar="SCORE", help="Stop when the last 100 games average so much."),
]
InitFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN|FILE",
        help="Start with the weights of another run, checkpoint or bundle; counters and optimizer are fresh.",
    ),
]
OnNan = Annotated[
    OnNanChoice | None,
    typer.Option(
        help="If loss or gradients are not finite; the update is never applied. Default: as configured, else stop."
    ),
]
Greedy = Annotated[
    bool | None,
    typer.Option("--greedy/--sample", help="The most probable action, or a draw. Default: the run's own."),
]
EvaluationSeed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Of games and draws. Default: the run's own.")
]
Episodes = Annotated[
    int | None, typer.Option(min=1, max=MOST_GAMES, help="Whole games to play. Default: the run's own, else 20.")
]


Jobs = Annotated[int | None, typer.Option(min=1, max=1024, help="Processes at a time. Default: the cores.")]
RayCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="auto|ADDRESS",
        help="Run them on a Ray cluster: the one running here, or HOST:PORT, ray://HOST:PORT.",
    ),
]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, max=1000, help="Train with so many seeds, from --seed on, each in a process of its own."),
]
Strategy = Annotated[
    StrategyChoice | None,
    typer.Option(help="mirrored: all GPUs of this machine; multiworker: a cluster. Default: none."),
]
AutoResume = Annotated[
    bool,
    typer.Option(
        "--auto-resume", "--resume", help="Resume --run-dir if it holds a checkpoint, for whatever restarts it."
    ),
]


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[A B ... | RUN_A RUN_B ...]", help="Algorithms (or module:Name), presets or files; or run folders."
    ),
]
EagerAgainstGraph = Annotated[
    bool, typer.Option("--eager", help="Eager against graph: where, why, growth, convergence.")
]
Question = Annotated[
    bool, typer.Option("--question", help="The experiment of the question why eager and graph differ.")
]
Vary = Annotated[str | None, typer.Option(metavar="KEY=A,B[,C]", help="One way of training for each value of a key.")]
Envs = Annotated[
    list[str] | None,
    typer.Option(
        help="A game; may be repeated. Default: that of the presets or files, else Catch.", autocompletion=complete_env
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        parser=score, metavar="FLOAT", help="The return to reach. Default: that of the game, see docs/comparing.md."
    ),
]
OutDir = Annotated[Path | None, typer.Option("--out", help="The folder of results. Default: runs/compare-....")]


ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        help=(
            "A preset's name or a YAML file. Default: that of the game or of the algorithm; for what is neither game "
            "nor toy, vector."
        ),
        autocompletion=complete_config,
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help=(
            f"{', '.join(SECTIONS)}, or a class of your own, module:Name; {STRONGEST} has the best results on games. "
            "Default: the preset's."
        ),
        autocompletion=complete_algorithm,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", help="auto, nature, ..., or a function of your own, module:builder. Default: the preset's."
    ),
]
WrapperOption = Annotated[
    list[str] | None,
    typer.Option(
        "--wrapper",
        help="A class for env.wrappers, module:Name, of Gymnasium or your own; may be repeated.",
    ),
]
EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        help="A game such as Pong (see a2c envs), Catch, any Gymnasium id, or module:Id-v0.",
        autocompletion=complete_env,
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Any other setting; may be repeated, and wins over everything else.",
        autocompletion=complete_set,
    ),
]
Eager = Annotated[bool, typer.Option("--eager", help="The same as --mode eager.")]
ModeOption = Annotated[Mode | None, typer.Option("--mode", help="How the update is executed. Default: graph.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result there.")]


def mode_of(eager: bool, mode: Mode | None) -> str | None:
    """The mode that --eager and --mode ask for."""
    if eager and mode not in (None, "eager"):
        raise UserError(f"--eager and --mode {mode} contradict each other; give one of them.")
    return "eager" if eager else mode


def check_target(json_file: Path | None, out_file: Path | None = None) -> None:
    """Check that a file can be written before the work is done, and is not that of --out."""
    if json_file is None:
        return
    if out_file is not None and os.path.realpath(json_file) == os.path.realpath(out_file):
        raise UserError(f"--out and --json are both {json_file}; name two files.")
    folder = json_file.absolute().parent
    if json_file.is_dir() or not folder.is_dir():
        raise UserError(f"--json {json_file} must be a file in a folder that exists.")
    if not json_file.exists() or (json_file.is_file() and not json_file.is_symlink()):  # it is replaced
        try:
            try_writing(folder)
        except OSError as error:
            raise UserError(f"--json {json_file} cannot be written: {error.strerror}.") from None


def trust_named(*names: str | None) -> None:
    """Allow the code that the user has named to run.

    Raises:
        UserError: if a name is not code (module:Name), since runs and files keep their algorithm, network and wrappers.
    """
    for name in filter(None, names):
        if not is_extension(name):
            raise UserError(
                f"Runs and files keep their own algorithm, network and wrappers; leave {shown(name)} out. Code of "
                "yours is named module:Name."
            )
        if "(" in name:
            raise UserError(f"The arguments of wrappers are kept; give {shown(name.partition('(')[0])} alone.")
        trust(name)


def check_env(env_id: str) -> None:
    """Check an environment's name before TensorFlow is imported, which takes seconds."""
    from a2c.envs import check_env

    check_env(env_id)
