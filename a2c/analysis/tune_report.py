"""The report of a search: a table of its trials, Optuna's pictures, and files for other programs."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from a2c.analysis.arms import last_record
from a2c.analysis.judge import Judgement
from a2c.analysis.report import Table
from a2c.analysis.trials import DEFAULT, REASON, STATES
from a2c.analysis.tune import Found
from a2c.config import short_keys
from a2c.execution.machine import versions
from a2c.run.files import make_folders, write_atomically
from a2c.run.lock import alone_in
from a2c.show.style import render

SHOWN = 10  # trials, in the table
MOST_SIGNS = 12  # in the legend of the curves
WIDE, NARROW = (11.0, 5.0), (7.0, 4.5)  # inches


def best_trials(found: Found) -> Table:
    """The trials with the highest scores, and the default."""
    study = found.trials
    complete = [trial for trial in study.all() if trial.state == study.state.COMPLETE]
    ranked = sorted(complete, key=lambda trial: (-trial.value, trial.number))
    shown = ranked[:SHOWN] + [trial for trial in ranked[SHOWN:] if DEFAULT in trial.user_attrs]
    rows = []
    for trial in shown:
        settings = study.settings_of(trial)
        name = f"{trial.number} (default)" if DEFAULT in trial.user_attrs else str(trial.number)
        rows.append((name, f"{trial.value:.2f}", *(str(settings[key]) for key in study.space)))
    return Table("The best trials", ("trial", "score", *short_keys(study.space).values()), rows)


def write_tune_report(found: Found, judgement: Judgement, command: str) -> Path:
    """Write `report/`: trials.csv, study.json and the pictures; returns the folder."""
    folder = found.folder / "report"
    make_folders(folder)
    with alone_in(found.folder):
        rows = [_row(found, trial) for trial in found.trials.all()]
        values = {
            "command": command,
            "verdict": judgement.sentence,
            "best": None if judgement.trial is None else judgement.trial.number,
            "versions": {**versions(), "optuna": found.trials.optuna.__version__},
            "trials": rows,
        }
        write_atomically(folder / "study.json", json.dumps(values, indent=1) + "\n")
        write_atomically(folder / "trials.csv", _csv(rows))
        _draw(found, folder)
    return folder


def _row(found: Found, trial: Any) -> dict[str, Any]:
    last = last_record(found.folder / "trials" / f"{trial.number:04d}")
    return {
        "trial": trial.number,
        "state": STATES.get(trial.state.name, "waiting"),
        "score": trial.value,
        "env_steps": last.get("env_steps"),
        "seconds": last.get("seconds"),
        "reason": trial.user_attrs.get(REASON),
        **found.trials.settings_of(trial),
    }


def _csv(rows: list[dict[str, Any]]) -> str:
    file = StringIO()
    writer = csv.DictWriter(file, dict.fromkeys(key for row in rows for key in row))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _draw(found: Found, folder: Path) -> None:
    """Draw Optuna's pictures, if two trials are complete: fewer show nothing."""
    study, optuna = _renamed(found), found.trials.optuna
    states = [trial.state for trial in study.trials]
    if states.count(found.trials.state.COMPLETE) < 2:
        return
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    pictures = optuna.visualization.matplotlib
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    drawings: dict[str, tuple[Callable[[], Any], tuple[float, float]]] = {
        "history": (lambda: pictures.plot_optimization_history(study, target_name="score"), NARROW),
        "curves": (lambda: _draw_curves(pictures, study), NARROW),
        "importance": (lambda: pictures.plot_param_importances(study, evaluator, target_name="score"), NARROW),
        "parallel": (lambda: pictures.plot_parallel_coordinate(study, target_name="score"), WIDE),
    }
    for name, (draw, size) in drawings.items():
        with mpl.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few trials, or equal ones
            figure = draw().figure
            figure.set_size_inches(size)
            write_atomically(folder / f"{name}.png", render(figure, "png", fitted=True))
            plt.close(figure)


def _draw_curves(pictures: Any, study: Any) -> Any:
    axes = pictures.plot_intermediate_values(study)
    axes.set(title="The trials on their way; the short ones were pruned", xlabel="agent steps", ylabel="score")
    if len(study.trials) > MOST_SIGNS and axes.get_legend():
        axes.get_legend().remove()
    return axes


def _renamed(found: Found) -> Any:
    """A copy of the study whose keys are short enough for pictures; what has no score counts as failed."""
    optuna, state, space = found.trials.optuna, found.trials.state, found.trials.space
    names = short_keys(space)
    copy = optuna.create_study(direction="maximize")
    for trial in found.trials.study.get_trials():
        kept = trial.state in (state.COMPLETE, state.PRUNED) and trial.value is not None
        copy.add_trial(
            optuna.trial.create_trial(
                state=trial.state if kept else state.FAIL,
                value=trial.value if kept else None,
                params={names[key]: value for key, value in trial.params.items()},
                distributions={names[key]: each for key, each in trial.distributions.items()},
                intermediate_values=trial.intermediate_values,
            )
        )
    return copy
