"""A page about runs: one self-contained HTML file, for people who have neither the run nor a2c."""

from __future__ import annotations

import hashlib
import html
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from a2c.config import UserError, build_config, printable_lines
from a2c.messages import interval, number
from a2c.reading import is_regular, read_bytes
from a2c.run.counters import WINDOW
from a2c.run.files import write_result
from a2c.show.commands import eval_command, train_command, watch_command
from a2c.show.curves import AXES, Panel, default_smoothing, make_panels
from a2c.show.plot import draw_alone, draw_sign, home, legend_entries
from a2c.show.runs import Evaluation, RunRecord, by_game, default_settings
from a2c.show.style import render
from a2c.version import __version__

LARGEST_VIDEO = 10_000_000  # bytes
MOST_ROWS = 200  # of evaluations
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# the browser runs and fetches nothing, whatever a run's files hold
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; media-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def write_page(runs: Sequence[RunRecord], target: Path | None = None) -> Path:
    """Write the page, and return its path.

    Args:
        runs: one or more.
        target: of the page. Default: report.html in the folder of one run, for several in the current folder, written
            without following links.

    Raises:
        UserError: if the file cannot be written.
    """
    below = home(runs) if target is None else None
    written = target or home(runs) / "report.html"
    write_result(written, make_page(runs), below=below)
    return written


def make_page(runs: Sequence[RunRecord]) -> str:
    """The page as HTML. Every text that comes from a run's files is escaped."""
    games = ", ".join(dict.fromkeys(run.env_id for run in runs))
    title = f"{games}: {runs[0].label}" if len(runs) == 1 else f"{games}: {len(runs)} runs"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<header><h1>{escape(title)}</h1>\n"
        f'<p class="quiet">Made by a2c {escape(__version__)} from the logs of the run{"s" * (len(runs) > 1)}.</p>'
        f"</header>\n<main>\n{_section('At a glance', _glance(runs))}{_section('Curves', _curves(runs))}"
        f"{''.join(_run(run) for run in runs)}</main>\n</body>\n</html>\n"
    )


# --- parts of the page ------------------------------------------------------------------------------------------------


def _glance(runs: Sequence[RunRecord]) -> str:
    facts = [_facts(run) for run in runs]
    if len(runs) == 1:
        shown = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>\n" for name, value in facts[0].items()
        )
        return f'<dl class="facts">{shown}</dl>\n'
    rows = [(run.label, run.env_id, str(run.seed), *of.values()) for run, of in zip(runs, facts, strict=True)]
    return _table("Runs", ("run", "environment", "seed", *facts[0]), rows)


def _facts(run: RunRecord) -> dict[str, str]:
    """The headline numbers."""
    metrics = run.metrics
    last = run.evaluations[-1] if run.evaluations else None
    return {
        "last evaluation": "none" if last is None else number(last.mean),
        "its 95 % interval": _interval(last),
        f"return, last {WINDOW} training games": number(run.last_return, missing="no game ended"),
        f"best mean of {WINDOW}": number(run.best_return),
        "agent steps": _count(metrics["env_steps"][-1]),
        "emulator frames": _count(metrics["frames"][-1]),
        "updates": _count(metrics["updates"][-1]),
        "training games": _count(metrics["episodes"][-1]),
        "minutes of training": number(metrics["seconds"][-1] / 60, ",.1f"),
        "agent steps a second": _count(run.speed),
    }


def _curves(runs: Sequence[RunRecord]) -> str:
    smoothing = default_smoothing(runs)
    return "".join(_charts(game, of, smoothing) for game, of in by_game(runs).items())


def _charts(game: str, runs: Sequence[RunRecord], smoothing: int) -> str:
    """All quantities of one game over agent steps, and first of all the return, over minutes too."""
    try:
        panels = make_panels(runs, "all", "steps", smoothing)
    except UserError as nothing:
        return f"<p>{escape(str(nothing))}</p>\n"
    drawn = [(panel, "steps") for panel in panels]
    with suppress(UserError):  # no run says its seconds
        drawn[1:1] = [(panel, "minutes") for panel in make_panels(runs, "return", "minutes", smoothing)]
    charts = "".join(_chart(panel, axis, smoothing, runs) for panel, axis in drawn)
    legend = "".join(_legend_entry(text, style) for text, style in legend_entries(panels, smoothing))
    return _subsection(game, f'<ul class="legend">\n{legend}</ul>\n<div class="charts">\n{charts}</div>\n')


def _legend_entry(text: str, style: Mapping[str, Any]) -> str:
    return f'<li><img src="{_data("image/svg+xml", render(draw_sign(style), "svg"))}" alt=""> {escape(text)}</li>\n'


def _chart(panel: Panel, axis: str, smoothing: int, runs: Sequence[RunRecord]) -> str:
    source = _data("image/svg+xml", render(draw_alone(panel, axis, smoothing), "svg"))
    caption = f"{panel.label} over {AXES[axis][1]}"
    named = ", ".join(run.label for run in runs)
    return f'<figure><img src="{source}" alt="{escape(f"{caption}: {named}")}"></figure>\n'


def _run(run: RunRecord) -> str:
    parts = (
        _subsection("Evaluations", _evaluations(run)),
        _subsection("Video", _video(run)),
        _subsection("Make it again", _commands(run)),
        _subsection("Configuration", _configuration(run)),
        _subsection("Versions", _versions(run)),
    )
    return _section(f"{run.label}: {run.env_id}, seed {run.seed}", "".join(parts))


def _evaluations(run: RunRecord) -> str:
    if not run.evaluations:
        return (
            "<p>None was made. <code>evaluation.episodes</code> sets how many whole games are played beside training."
            "</p>\n"
        )
    last = run.evaluations[-MOST_ROWS:]
    earlier = len(run.evaluations) - len(last)
    left_out = f"<p>These are the last {len(last)}; {earlier:,} earlier ones are left out.</p>\n" if earlier else ""
    protocols = list({tuple(one.protocol.items()): one.protocol for one in last}.values())
    headings = ("after steps", "mean", "95 % interval", "median", "lowest", "highest", "games", "human-normalised")
    rows = [
        (
            *(_count(one.env_steps), number(one.mean), _interval(one), number(one.median)),
            *(number(one.minimum), number(one.maximum), number(one.episodes, ",d")),
            *(number(one.human_normalized, ".3f"), one.policy, str(protocols.index(one.protocol) + 1)),
        )
        for one in last
    ]
    table = _table("Whole games with raw scores; the interval is of the mean", (*headings, "policy", "protocol"), rows)
    details = (
        _details(f"Protocol {number}", _table(f"Protocol {number}", ("what", "value"), _named(protocol)))
        for number, protocol in enumerate(protocols, 1)
    )
    return left_out + table + "".join(details)


def _named(protocol: dict[str, str]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), value) for name, value in protocol.items()]


def _video(run: RunRecord) -> str:
    video = _newest_video(run.path / "videos")
    if video is None:
        none = f"No video of up to {LARGEST_VIDEO / 1e6:g} MB lies in the run's folder; this command makes one:"
        return f"<p>{none}</p>\n{_code(watch_command(run))}"
    name, content = video
    source, name = _data("video/mp4", content), escape(name)
    return (
        f'<figure><video controls muted playsinline preload="metadata" aria-label="A game of this run" src="{source}">'
        f"</video><figcaption>{name}</figcaption></figure>\n"
    )


def _newest_video(folder: Path) -> tuple[str, bytes] | None:
    """The name and content of the newest video that is not too large; links are not followed."""
    films = [] if folder.is_symlink() else [file for file in folder.glob("*.mp4") if is_regular(file, links=False)]
    for file in sorted(films, key=lambda file: (file.stat().st_mtime, file.name), reverse=True):
        with suppress(OSError):
            return file.name, read_bytes(file, LARGEST_VIDEO, links=False)
    return None


def _commands(run: RunRecord) -> str:
    evaluate = (
        f"<p>Play whole games, as the last evaluation did, with the latest checkpoint:</p>\n{_code(eval_command(run))}"
    )
    try:
        config = build_config(run.values, where=str(run.path))
        train = train_command(config)
    except UserError as error:
        return f"<p>The command that trains it cannot be given here: {escape(str(error))}</p>\n{evaluate}"
    commit = run.provenance.get("git", "None")
    at = "" if commit == "None" else f" (commit <code>{escape(commit)}</code>)"
    same = (
        f"a run made in one session comes to the same bits with the versions below{at}, the same type of processor and "
        "the same number of threads"
    )
    if not config.algorithm.PROMISES.exact:
        same = f"its algorithm does not promise the same bits; the versions are below{at}"
    if (origin := run.provenance.get("init_from")) is not None:
        same += f". It started with the weights of <code>{escape(origin)}</code>, so give <code>--init-from</code> too"
    return f"<p>Train with exactly this configuration; {same}:</p>\n{_code(train)}{evaluate}"


def _configuration(run: RunRecord) -> str:
    defaults = default_settings(run.settings)
    rows = [(str(key), _value(value), _value(defaults.get(key, "-"))) for key, value in run.settings.items()]
    changed = [row for row in rows if row[1] != row[2]]
    headings = ("key", "value", "default")
    few = _table(f"The {len(changed)} settings that differ from the defaults", headings, changed)
    every = _table("Those that differ are marked", headings, rows, marked=lambda row: row[1] != row[2])
    return few + _details(f"All {len(rows)} settings", every)


def _versions(run: RunRecord) -> str:
    if not run.provenance:
        return "<p>The run does not say.</p>\n"
    return _table("What made it", ("what", "version"), list(run.provenance.items()))


# --- pieces of HTML ---------------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """A text escaped for a page; the ends of lines are kept."""
    return html.escape(printable_lines(text))


def _section(heading: str, content: str) -> str:
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}</section>\n"


def _subsection(heading: str, content: str) -> str:
    return f"<h3>{escape(heading)}</h3>\n{content}"


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>\n{content}</details>\n"


def _code(text: str) -> str:
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>\n'


def _table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    marked: Callable[[Sequence[str]], bool] = lambda row: False,
) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(_row(row, marked=marked(row)) for row in rows)
    table = f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return _box(caption, f"<table>{table}</table>")


def _box(name: str, content: str) -> str:
    """A box that scrolls if its content is too wide; the keyboard can reach it, so it has a name."""
    return f'<div class="box" tabindex="0" role="region" aria-label="{escape(name)}">{content}</div>\n'


def _row(cells: Sequence[str], *, marked: bool) -> str:
    opening, mark = ('<tr class="changed">', " *") if marked else ("<tr>", "")
    others = "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
    return f'{opening}<th scope="row">{escape(cells[0])}{mark}</th>{others}</tr>\n'


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def _interval(evaluation: Evaluation | None) -> str:
    return interval(None if evaluation is None else evaluation.interval)


def _count(value: float | None) -> str:
    return number(value, ",.0f")


def _value(value: Any) -> str:
    """A value as it is typed in YAML."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
