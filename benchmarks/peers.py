r"""Training speed of a2c and its peers, side by side: `python benchmarks/peers.py`, where a2c is installed.

Every contestant plays the same game with the same number of threads, the peers in 16 environments with rollouts of 5
steps, and ours as its preset says, which for `a2c:atari` is the same; --num-envs and --rollout-length set all. Each is
a process of its own that is built and warmed up once. Then they are measured in turn, A B C, A B C and so on, for a few
seconds each, while the others block on stdin; so whatever else the machine does meets all alike.
Ratios are taken within each round. What a contestant includes and leaves out stands at the top of its file:

    a2c[:PRESET[,section.key=value...]] contestants/ours.py: as `a2c train` runs it; without a preset, the game's own
    sb3, sb3-ppo                        contestants/sb3.py: scalar environments in process, as its users run it
    torch, torch-compile, torch-bf16    contestants/pytorch.py: tuned by hand, on the same native environments as ours
    torch-ppo, -ppo-compile, -ppo-bf16  contestants/pytorch_ppo.py: CleanRL's PPO with the same care
    tianshou                            contestants/tianshou_envpool.py: on EnvPool

PPO beside its peers, all with the Nature network, 8 environments and rollouts of 128 steps:

    python benchmarks/peers.py a2c:atari,algorithm.name=ppo,optimizer.name=adam sb3-ppo torch-ppo torch-ppo-compile \
        --num-envs 8 --rollout-length 128

The peers get virtual environments of their own (install.py). One that cannot be installed or run here is left out, and
the reason is said.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from install import HERE, LeftOutError, last_error, virtual_environment

from a2c.config import UserError, dump_config, load_config, nearest
from a2c.execution.machine import processor
from a2c.games import Game, atari_game, game_names

Round = dict[str, dict[str, float]]  # contestant -> what was measured

DEFAULT = ("a2c:atari", "a2c:a2c", "sb3", "torch", "torch-compile", "torch-bf16", "tianshou")
PEERS_NUM_ENVS, PEERS_ROLLOUT_LENGTH = 16, 5  # of the classic recipe
MUCH = 0.05  # of all CPU time: other processes that take more in a round are worth a warning


class Peer(NamedTuple):
    """Another trainer: whose environment it needs, its file in contestants/, and the variant that its `build` gets."""

    environment: str
    script: str
    variant: dict[str, bool] | None = None


PEERS = {
    "sb3": Peer("sb3", "sb3.py", {"ppo": False}),
    "sb3-ppo": Peer("sb3", "sb3.py", {"ppo": True}),
    "torch": Peer("torch", "pytorch.py", {"compiled": False, "bfloat16": False}),
    "torch-compile": Peer("torch", "pytorch.py", {"compiled": True, "bfloat16": False}),
    "torch-bf16": Peer("torch", "pytorch.py", {"compiled": True, "bfloat16": True}),
    "torch-ppo": Peer("torch", "pytorch_ppo.py", {"compiled": False, "bfloat16": False}),
    "torch-ppo-compile": Peer("torch", "pytorch_ppo.py", {"compiled": True, "bfloat16": False}),
    "torch-ppo-bf16": Peer("torch", "pytorch_ppo.py", {"compiled": True, "bfloat16": True}),
    "tianshou": Peer("tianshou", "tianshou_envpool.py"),
}


def main() -> int:
    """Run the benchmark; 2 where the user has to change something first."""
    options = parse()
    try:
        results = run(options)
    except (UserError, LeftOutError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def parse() -> argparse.Namespace:
    """The command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("contestants", nargs="*", default=DEFAULT, help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--game", default="Pong", help="an Atari game (default: %(default)s)")
    parser.add_argument("--num-envs", type=positive, help="environments of each (default: see above)")
    parser.add_argument("--rollout-length", type=positive, help="steps of one update (default: see above)")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="of each (default: all cores)")
    parser.add_argument("--rounds", type=positive, default=5, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=seconds, default=8.0, help="of one measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    return parser.parse_args()


def positive(text: str) -> int:
    """An option's value: at least 1."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def seconds(text: str) -> float:
    """An option's value: a finite number above 0."""
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError("it must be above 0")
    return float(text)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Install, start and measure: what `report` shows and --json writes.

    Raises:
        UserError: for an unknown contestant, game, preset or folder, if there is no network to install from, or if no
            contestant can run.
        LeftOutError: if a contestant ends after it has started.
    """
    if options.json and not options.json.parent.is_dir():
        raise UserError(f"There is no folder {options.json.parent} to write --json into.")
    game = atari_game(options.game)
    if game is None:
        raise UserError(f"There is no Atari game {options.game!r}.{nearest(options.game, game_names())}")
    # before anything is installed, so that a misspelt name is told at once
    commands = {name: our_command(name, game, options) for name in options.contestants if name not in PEERS}
    running: list[Contestant] = []
    left_out: dict[str, str] = {}
    try:
        for name in dict.fromkeys(options.contestants):
            say(f"{name}: starting")
            try:
                running.append(Contestant(name, commands.get(name) or peer_command(PEERS[name], game, options)))
            except LeftOutError as reason:
                left_out[name] = str(reason)
                say(f"{name} is left out. {reason}")
        if not running:
            raise UserError("None of the contestants can run here.")
        rounds = [measure(running, options.seconds) for _ in range(options.rounds)]
    finally:
        for contestant in running:
            contestant.close()
    return {
        "setting": {key: value for key, value in vars(options).items() if key not in ("contestants", "json")},
        "machine": machine(),
        "versions": {contestant.name: contestant.versions for contestant in running},
        "left_out": left_out,
        "rounds": rounds,
    }


def our_command(name: str, game: Game, options: argparse.Namespace) -> list[str | Path]:
    """What runs `a2c:PRESET,key=value,...`."""
    kind, _, variant = name.partition(":")
    if kind != "a2c":
        known = ["a2c", "a2c:PRESET", *PEERS]
        raise UserError(f"There is no contestant {name!r}; there are {', '.join(known)}.{nearest(name, known)}")
    preset, *assignments = re.split(r",(?=[a-z_.]+=)", variant)  # a value may hold commas of its own
    common = {
        "env.num_envs": options.num_envs,
        "env.threads": options.threads,
        "algorithm.rollout_length": options.rollout_length,
        "runtime.threads": options.threads,
    }
    config, _ = load_config(config=preset or None, env_id=game.name, overrides=common, assignments=assignments)
    say(f"{name}: {config.env.num_envs} x {config.algorithm.rollout_length} steps")
    return command(Path(sys.executable), "ours.py", game, options, dump_config(config))


def peer_command(peer: Peer, game: Game, options: argparse.Namespace) -> list[str | Path]:
    """What runs a peer, in an environment that is there; errors as in `virtual_environment`."""
    return command(virtual_environment(peer.environment), peer.script, game, options, peer.variant)


def command(python: Path, script: str, game: Game, options: argparse.Namespace, variant: Any) -> list[str | Path]:
    """Contestant's arguments, all but the last: see `Settings` in contestants/protocol.py."""
    settings = {
        "game": game.name,
        "rom": game.rom,
        "num_envs": options.num_envs or PEERS_NUM_ENVS,
        "rollout_length": options.rollout_length or PEERS_ROLLOUT_LENGTH,
        "threads": options.threads,
        "variant": variant,
    }
    return [python, HERE / "contestants" / script, json.dumps(settings)]


class Contestant:
    """A running contestant, warm; see contestants/protocol.py for what is said.

    Raises:
        LeftOutError: if it ends before it is warm.
    """

    def __init__(self, name: str, command: list[str | Path]) -> None:
        self.name = name
        self.log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115, lives as long as the process
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [*command, str(writer)],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            pass_fds=[writer],
            text=True,
            bufsize=1,
        )
        os.close(writer)
        self.answers = os.fdopen(reader)
        self.versions: dict[str, str] = self._answer()

    def measure(self, seconds: float) -> dict[str, float]:
        """Train for so long.

        Returns:
            Agent steps per second, and the part of all CPU time that other processes took meanwhile.
        """
        start = busy_seconds()
        print(seconds, file=self.process.stdin)
        done = self._answer()
        others = (busy_seconds() - start - done["cpu_seconds"]) / (done["seconds"] * (os.cpu_count() or 1))
        return {"steps_per_second": done["steps"] / done["seconds"], "others": max(0.0, others)}

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def _answer(self) -> Any:
        line = self.answers.readline()
        if line:
            return json.loads(line)
        self.process.wait()  # until it has told why
        self.log.seek(0)
        raise LeftOutError(f"{self.name} ended with: {last_error(self.log.read())}")


def measure(running: list[Contestant], seconds: float) -> Round:
    """One round: each in turn."""
    done = {contestant.name: contestant.measure(seconds) for contestant in running}
    say("steps/s: " + ", ".join(f"{name} {speed(done, name):,.0f}" for name in done))
    return done


def report(results: dict[str, Any]) -> str:
    """What was measured, for people: medians over the rounds, and in brackets the smallest and the largest."""
    rounds: list[Round] = results["rounds"]
    names = list(results["versions"])
    setting = "{game}, {threads} threads; {rounds} rounds of {seconds:g} s"
    lines = [setting.format(**results["setting"]), ", ".join(results["machine"].values()), ""]
    lines += [*aligned([headings(names), *(row(name, names, rounds) for name in names)]), ""]
    lines += [f"{name} is left out. {reason}" for name, reason in results["left_out"].items()]
    lines += [f"{name}: {', '.join(map(' '.join, found.items()))}" for name, found in results["versions"].items()]
    others = max(done["others"] for one in rounds for done in one.values())
    if others > MUCH:
        lines.append(f"Other processes took up to {others:.0%} of all CPU time: measure again on a quiet machine.")
    return "\n".join(lines)


def headings(names: list[str]) -> list[str]:
    """Of the columns of `row`."""
    return ["", "steps/s", *(f"it / {sb3}" for sb3 in stable_baselines(names)), *(f"{our} / it" for our in ours(names))]


def row(name: str, names: list[str], rounds: list[Round]) -> list[str]:
    """A contestant's speed, its ratios to Stable-Baselines3's, and the ratio of each of ours to it."""
    cells = [name, spread([speed(one, name) for one in rounds], ",.0f")]
    for sb3 in stable_baselines(names):
        cells.append(spread([speed(one, name) / speed(one, sb3) for one in rounds], ".2f"))
    return cells + [spread([speed(one, our) / speed(one, name) for one in rounds], ".2f") for our in ours(names)]


def stable_baselines(names: list[str]) -> list[str]:
    """The contestants that are Stable-Baselines3."""
    return [name for name in names if name.startswith("sb3")]


def ours(names: list[str]) -> list[str]:
    """The contestants that are a2c."""
    return [name for name in names if name not in PEERS]


def speed(one: Round, name: str) -> float:
    """Agent steps per second of a contestant in a round."""
    return one[name]["steps_per_second"]


def spread(values: list[float], form: str) -> str:
    """`median (smallest - largest)`."""
    return "{:{f}} ({:{f}} - {:{f}})".format(median(values), min(values), max(values), f=form)


def aligned(rows: list[list[str]]) -> list[str]:
    """Lines of cells under each other: the first to the left, the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([name.ljust(first), *map(str.rjust, cells, others)]) for name, *cells in rows]


def machine() -> dict[str, str]:
    """Processor, cores, system, and the Python of all contestants."""
    return {
        "processor": processor(),
        "cores": f"{os.cpu_count()} cores",
        "system": platform.platform(),
        "python": f"Python {platform.python_version()}",
    }


def busy_seconds() -> float:
    """CPU seconds since boot that were not idle, those of other guests on the host too; 0 if nothing tells."""
    about = Path("/proc/stat")
    if not about.exists():
        return 0.0
    user, nice, system, _, _, *interrupts_and_steal = map(int, about.read_text(encoding="utf-8").split()[1:9])
    return (user + nice + system + sum(interrupts_and_steal)) / os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    """Progress goes to stderr; stdout is for the report."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
