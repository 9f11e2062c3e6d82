"""Learning curves: what is read from run folders, what is made of it, and how it is drawn."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import assert_one_sentence, read_lines
from matplotlib.colors import to_hex
from run_folders import evaluation, make_run

from a2c.algorithms.sections import A2CSection
from a2c.config import UserError
from a2c.run.metrics import RUN_COLUMNS
from a2c.show.curves import RETURN, SPEED, make_panels, smooth
from a2c.show.plot import check_target, draw, save
from a2c.show.runs import LONGEST_NAME, METRICS, MOST_COLUMNS, RunRecord, by_recipe, read_runs
from a2c.show.style import COLOURS, MOST_POINTS, kept, line, markers, render

RISE = [float(i) for i in range(10)]


def only_curve(paths: list[Path], axis: str = "steps", smoothing: int = 0):
    (panel,) = make_panels(read_runs(paths), "return", axis, smoothing)
    (curve,) = panel.curves
    return curve


# --- what is read -----------------------------------------------------------------------------------------------------


def test_the_half_last_line_of_a_run_under_way_is_left_out_in_silence(tmp_path):
    run = make_run(tmp_path / "r", [1.0, 2.0, 3.0])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 4')
    told: list[str] = []
    (read,) = read_runs([run], told.append)
    assert read.metrics["episode_return_mean"].tolist() == [1, 2, 3]
    assert told == []


def test_a_pipe_in_place_of_metrics_is_not_waited_for(tmp_path):
    run = make_run(tmp_path / "r", [1.0])
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics.jsonl cannot be read: it is no regular file"):
        read_runs([run])


@pytest.mark.parametrize(
    "more",
    [
        "mine: &a [*a]",
        "a: &a [x,x,x]\nb: &b [*a,*a,*a]\n"
        + "".join(
            f"{new}: &{new} [*{old},*{old},*{old},*{old},*{old},*{old}]\n"
            for old, new in zip("bcdefghijk", "cdefghijkl", strict=True)
        ),
        f"mine: 0x{'f' * 90_000}",
    ],
    ids=["itself", "billion", "digits"],
)
def test_a_config_that_holds_more_than_any_run_is_refused(tmp_path, more):
    run = make_run(tmp_path / "r", [1.0])
    with (run / "config.yaml").open("a") as file:
        file.write(more)
    with pytest.raises(UserError, match=r"stands for what it is in|it holds more than 20,000|it is larger than"):
        read_runs([run])


def test_damaged_lines_are_left_out_and_told(tmp_path):
    run = make_run(tmp_path / "r", [1.0, 2.0, 3.0, 4.0])
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[1] = lines[1][:-7]
    lines[2:2] = ["[1, 2]", '{"env_steps": true}', "[" * 100_000, '{"env_steps": 1' + "0" * 5000 + "}"]
    lines.insert(0, json.dumps({"env_steps": 50, "entropy": [1], "seconds": 10**400, "episode_return_mean": "high"}))
    lines.append(lines[-1])  # a step that was there already
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    told: list[str] = []
    (read,) = read_runs([run], told.append)
    np.testing.assert_equal(read.metrics["episode_return_mean"], [np.nan, 1, 3, 4])
    np.testing.assert_equal(read.metrics["seconds"][:2], [np.nan, 2])
    assert told == [f"{run / 'metrics.jsonl'}: damaged lines are left out, 5 in all, the first is line 3."]


def test_evaluations_that_say_less_are_shown_as_far_as_they_go(tmp_path):
    odd = [{"env_steps": 10, "mean": 1}, {"env_steps": 20}, {"env_steps": 30, "mean": 2, "interval": [1, None]}]
    run = make_run(tmp_path / "r", RISE, evaluations=[*odd, evaluation(40, 3.0)])
    (read,) = read_runs([run])
    assert [one.mean for one in read.evaluations] == [1, 2, 3]
    assert [one.interval for one in read.evaluations] == [None, None, (2, 5)]


def test_runs_that_learn_alike_but_for_the_seed_belong_together(tmp_path):
    seeds = [make_run(tmp_path / f"s{seed}", RISE, seed=seed, checkpoint={"keep": seed + 1}) for seed in (0, 1)]
    rate = make_run(tmp_path / "rate", RISE, seed=2, optimizer={"learning_rate": 1e-3})
    other = make_run(tmp_path / "other", RISE, env={"id": "Breakout"})
    warm = make_run(tmp_path / "warm", RISE, seed=2, init_from="runs/old, 4 steps")
    groups = by_recipe(read_runs([seeds[0], rate, seeds[1], other, warm]))
    assert [[run.label for run in members] for members in groups] == [["s0", "s1"], ["rate"], ["other"], ["warm"]]


def test_a_run_is_read_once_and_equal_names_become_paths(tmp_path):
    first, second = (make_run(tmp_path / name / "run", RISE) for name in "ab")
    runs = read_runs([first, second, first / "." / "checkpoints" / ".."])
    assert [run.label for run in runs] == [str(first), str(second)]


# --- what is made of it -----------------------------------------------------------------------------------------------


def test_a_group_is_drawn_only_where_all_its_runs_have_data(tmp_path):
    """A run that ends early, or starts late, must not make the median jump."""
    paths = [
        make_run(tmp_path / "long", [0.0] * 10, seed=0),
        make_run(tmp_path / "short", [10.0] * 6, seed=1),
        make_run(tmp_path / "late", [None, None, *[20.0] * 8], seed=2),
    ]
    curve = only_curve(paths)
    assert (curve.x[0], curve.x[-1]) == (300, 600)
    assert set(curve.middle) == {10}
    assert (set(curve.low), set(curve.high)) == ({0}, {20})
    assert [len(run.x) for run in curve.lines] == [10, 6, 8]  # each run is there as far as it goes
    assert curve.label == "long, short, late: median of 3 seeds where all have data, band from lowest to highest"


def test_a_run_without_any_value_is_left_out_of_its_group_and_counted(tmp_path):
    paths = [make_run(tmp_path / "a", RISE, seed=0), make_run(tmp_path / "b", [None] * 9, seed=1)]
    curve = only_curve(paths)
    assert curve.middle.tolist() == RISE
    assert curve.missing == ("b",)
    assert [run.run for run in curve.lines] == ["a"]


def test_runs_that_share_no_range_have_no_median(tmp_path):
    paths = [make_run(tmp_path / "a", RISE[:3], seed=0), make_run(tmp_path / "b", [None] * 5 + RISE, seed=1)]
    assert len(only_curve(paths).x) == 0
    render(draw(make_panels(read_runs(paths), "return", "steps", 0), "steps", 0), "png")


def test_repetitions_of_one_seed_are_not_called_seeds(tmp_path):
    paths = [make_run(tmp_path / name, RISE, seed=5) for name in "ab"]
    assert "median of 2 runs of 1 seed where" in only_curve(paths).label


def test_one_run_is_drawn_as_it_is(tmp_path):
    curve = only_curve([make_run(tmp_path / "a", [None, *RISE])])
    assert curve.x.tolist() == [200 + 100 * i for i in range(10)]
    assert curve.middle.tolist() == curve.low.tolist() == RISE
    assert curve.label == "a"


@pytest.mark.parametrize(
    ("axis", "places"), [("steps", [150, 1000]), ("frames", [600, 4000]), ("minutes", [0.05, 1 / 3])]
)
def test_every_axis_has_its_unit_for_curves_and_evaluations(tmp_path, axis, places):
    run = make_run(tmp_path / "r", RISE, evaluations=[evaluation(150, 4.0), evaluation(1000, 6.0)])
    curve = only_curve([run], axis)
    assert curve.x[-1] == pytest.approx(places[1])
    assert [mark.x for mark in curve.marks] == pytest.approx(places)
    assert [(mark.mean, mark.interval) for mark in curve.marks] == [(4, (3, 6)), (6, (5, 8))]


def test_smoothing_is_a_centred_mean_of_fewer_lines_at_the_ends():
    values = np.array([1.0, 2.0, 6.0, 4.0, 8.0])
    assert smooth(values, 0).tolist() == values.tolist()
    assert smooth(values, 1).tolist() == pytest.approx([1.5, 3, 4, 6, 6])
    assert smooth(values, 99).tolist() == pytest.approx([4.2] * 5)
    assert smooth(values, 10**30).tolist() == pytest.approx([4.2] * 5)
    assert smooth(values[:0], 3).shape == (0,)


def test_each_run_is_smoothed_before_the_median_is_taken(tmp_path):
    noisy = [make_run(tmp_path / f"{seed}", [0.0, 9.0] * 10, seed=seed) for seed in range(3)]
    curve = only_curve(noisy, smoothing=4)
    assert np.ptp(curve.lines[0].raw) == 9
    assert np.ptp(curve.middle[60:-60]) <= 1.01


def test_games_have_panels_of_their_own_and_quantities_too(tmp_path):
    paths = [make_run(tmp_path / name, RISE, env={"id": name}) for name in ("Pong", "Breakout")]
    panels = make_panels(read_runs(paths), "all", "steps", 0)
    losses = [metric.name for metric in A2CSection.METRICS if metric.plotted]
    quantities = {"all": [RETURN, *losses, SPEED], "losses": losses, "return": [RETURN], "speed": [SPEED]}
    for what, wanted in quantities.items():
        found = [(panel.env_id, panel.quantity) for panel in make_panels(read_runs(paths), what, "steps", 0)]
        assert found == [(env_id, quantity) for env_id in ("Pong", "Breakout") for quantity in wanted]
    axes = draw(panels, "steps", 0).axes
    assert [each.get_title() for each in axes[::7]] == ["Pong", "Breakout"]


def test_games_with_other_quantities_have_a_row_each_and_a_column_for_each_quantity(tmp_path):
    """Pong with an algorithm that has a policy loss, beside Breakout with one that has Q-values."""
    pong, breakout = (make_run(tmp_path / name, RISE, env={"id": name}) for name in ("Pong", "Breakout"))
    text = (breakout / "metrics.jsonl").read_text()
    (breakout / "metrics.jsonl").write_text(text.replace("policy_loss", "q_value").replace("entropy", "td_error"))
    panels = make_panels(read_runs([pong, breakout]), "all", "steps", 0)
    figure = draw(panels, "steps", 0)
    shown = [axes for axes in figure.axes if axes.axison]
    assert (len(figure.axes), len(shown)) == (18, 14)  # two cells of each row are empty
    columns: dict[str, set[int]] = {}
    for axes in shown:
        place = axes.get_subplotspec()
        assert axes.get_title() == ["Pong", "Breakout"][place.rowspan.start]
        columns.setdefault(axes.get_ylabel(), set()).add(place.colspan.start)
    assert sorted(columns) == sorted({panel.label for panel in panels})
    assert all(len(places) == 1 for places in columns.values())


def test_known_metrics_of_an_unknown_algorithm_have_the_labels_of_a2c(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"algorithm": {"name": "mine:Mine"}}))
    panels = make_panels(read_runs([run]), "losses", "steps", 0)
    labels = {metric.name: metric.label for metric in A2CSection.METRICS if metric.plotted}
    assert {panel.quantity: panel.label for panel in panels} == labels


# --- how it is drawn --------------------------------------------------------------------------------------------------


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_says_what_is_a_band_what_is_smoothed_and_what_the_stars_are(tmp_path):
    judged = [evaluation(1000, 5.0)]
    paths = [make_run(tmp_path / f"s{seed}", RISE, seed=seed, evaluations=judged) for seed in (0, 1)]
    panels = make_panels(read_runs(paths), "return", "steps", 3)
    assert legend(draw(panels, "steps", 3)) == [
        "s0, s1: median of 2 seeds where all have data, band from lowest to highest",
        "thin: as logged; thick: each line of metrics averaged with the 3 before and after it",
        "evaluation: mean of 20 whole games, with its 95 % interval",
    ]
    assert legend(draw(make_panels(read_runs(paths[:1]), "losses", "steps", 0), "steps", 0)) == ["s0"]


def test_the_legend_names_no_interval_if_there_is_none(tmp_path):
    """Of fewer than 5 games."""
    run = make_run(tmp_path / "r", RISE, evaluations=[evaluation(1000, 5.0, interval=None, episodes=3)])
    texts = legend(draw(make_panels(read_runs([run]), "return", "steps", 0), "steps", 0))
    assert texts[-1] == "evaluation: mean of 3 whole games"


def test_a_recipe_keeps_its_style_in_all_panels_even_where_another_has_no_data(tmp_path):
    paths = [make_run(tmp_path / "none", [None] * 10), make_run(tmp_path / "some", RISE, optimizer={"name": "adam"})]
    figure = draw(make_panels(read_runs(paths), "all", "steps", 0), "steps", 0)
    colours = {axes.lines[-1].get_color() for axes in figure.axes if axes.lines}
    assert colours == {COLOURS[1]}


def test_neighbouring_lines_differ_without_any_colour():
    looks = [(str(line(i)["ls"]), markers(i)["marker"]) for i in range(len(COLOURS))]
    assert len(set(looks)) == len(looks)
    greys = [np.dot([int(to_hex(c)[i : i + 2], 16) for i in (1, 3, 5)], [0.3, 0.6, 0.1]) for c in COLOURS[:3]]
    assert len(set(COLOURS)) == 7
    assert max(greys) < 160  # dark enough for paper


def test_of_several_runs_the_median_and_the_range_are_drawn(tmp_path):
    paths = [make_run(tmp_path / str(level), [float(level)] * 5, seed=level) for level in (0, 1, 2, 3, 9)]
    panels = make_panels(read_runs(paths), "return", "steps", 0)
    (axes,) = (axes for axes in draw(panels, "steps", 0).axes if axes.lines)
    assert set(axes.lines[-1].get_ydata()) == {2}
    (band,) = axes.collections
    assert {y for _, y in band.get_paths()[0].vertices} == {0, 9}


def long_run(values: np.ndarray) -> RunRecord:
    """As read from so many lines."""
    steps = np.arange(1.0, len(values) + 1)
    columns = {**dict.fromkeys(RUN_COLUMNS, steps), RETURN: values}
    return RunRecord(Path("r"), "r", {}, {"env.id": "Pong", "seed": 0}, {}, columns, ())


@pytest.mark.parametrize("smoothing", [0, 3])
def test_of_a_long_run_no_more_is_drawn_than_can_be_seen_and_every_spike(smoothing):
    """Matplotlib cannot draw hundreds of thousands of lines up and down at all."""
    values = np.arange(200_000.0) % 2
    values[[77_777, 123_456]] = 9, -9
    panels = make_panels([long_run(values)], "return", "steps", smoothing)
    figure = draw(panels, "steps", smoothing)
    lines = figure.axes[0].lines
    assert len(lines) == 1 + bool(smoothing)
    for drawn in lines:
        assert len(drawn.get_xdata()) <= MOST_POINTS + 2
        assert (drawn.get_xdata()[0], drawn.get_xdata()[-1]) == (1, 200_000)
    spikes = {(77_778, 9), (123_457, -9)}
    assert spikes <= set(zip(lines[0].get_xdata(), lines[0].get_ydata(), strict=True))
    assert len(figure.axes[0].collections[0].get_paths()[0].vertices) < 3 * MOST_POINTS
    assert len(panels[0].curves[0].x) == 200_000  # the numbers are all there
    assert render(figure, "png").startswith(b"\x89PNG")
    assert len(render(figure, "svg")) < 1_000_000


def test_the_signs_on_a_long_curve_are_as_many_as_on_a_short_one():
    figures = (
        draw(make_panels([long_run(np.arange(n) % 2.0)], "return", "steps", 0), "steps", 0) for n in (4000, 9000)
    )
    short, long = (figure.axes[0].lines[0].get_markevery() for figure in figures)
    assert abs(short[1] - long[1]) < 2


@pytest.mark.parametrize("points", [0, 1, 2, MOST_POINTS])
def test_all_points_of_a_short_line_are_drawn(points):
    assert kept(np.zeros(points)).tolist() == list(range(points))


def test_the_kept_points_rise_and_hold_the_extremes_of_each_part():
    values = np.random.default_rng(0).normal(size=MOST_POINTS + 1)
    at = kept(values)
    assert (np.diff(at) > 0).all()
    for part in np.array_split(np.arange(len(values)), MOST_POINTS // 2):
        assert {values[part].min(), values[part].max()} <= set(values[np.intersect1d(at, part)])


def test_thousands_of_evaluations_are_few_things_to_draw(tmp_path):
    """Each as an artist of its own took matplotlib as many seconds as there were hundreds."""
    run = make_run(tmp_path / "r", RISE, evaluations=[evaluation(i, 1.0) for i in range(1, 501)])
    axes = draw(make_panels(read_runs([run]), "return", "steps", 0), "steps", 0).axes[0]
    assert len(axes.containers) == 1
    stars = [drawn for drawn in axes.lines if drawn.get_marker() == "*"]
    assert [(len(drawn.get_xdata()), drawn.get_linestyle()) for drawn in stars] == [(500, "None")]
    assert len(axes.lines) + len(axes.collections) < 8


@pytest.mark.parametrize("interval", [None, [4.0, 6.5], [6.0, 7.0]])
def test_an_evaluation_has_its_star_and_its_interval(tmp_path, interval):
    judged = [evaluation(500, 1.0), evaluation(900, 5.0, interval=interval)]
    run = make_run(tmp_path / "r", RISE, evaluations=judged)
    axes = draw(make_panels(read_runs([run]), "return", "steps", 0), "steps", 0).axes[0]
    (star,) = (drawn for drawn in axes.lines if drawn.get_marker() == "*")
    (bars,) = axes.containers[0].lines[2]
    assert star.get_xydata().tolist() == [[500, 1], [900, 5]]
    ends = {None: [], 4.0: [[4, 6.5]], 6.0: [[5, 7]]}[interval and interval[0]]
    assert [bar[:, 1].tolist() for bar in bars.get_segments() if bar.size] == [[0, 3], *ends]


def test_invented_quantities_are_drawn_up_to_a_number_and_the_rest_told(tmp_path):
    run = make_run(tmp_path / "r", RISE[:2])
    more = {"y" * (LONGEST_NAME + 1): 1.0} | {f"mine_{i}": 1.0 for i in range(90)}
    known = dict.fromkeys(METRICS, 1.0)
    lines = read_lines(run / "metrics.jsonl")
    (run / "metrics.jsonl").write_text("".join(json.dumps({**more, **known, **line}) + "\n" for line in lines))
    told: list[str] = []
    runs = read_runs([run], told.append)
    named = MOST_COLUMNS - len(RUN_COLUMNS)
    assert told == [f"{run / 'metrics.jsonl'}: it names more quantities than are drawn; left out: {91 - named}."]
    drawn = {panel.quantity for panel in make_panels(runs, "losses", "steps", 0)}
    plotted = METRICS | {metric.name: metric for metric in A2CSection.METRICS}
    assert {f"mine_{i}" for i in range(named)} | {name for name in plotted if plotted[name].plotted} == drawn


def test_how_many_quantities_are_left_out_is_not_counted_for_ever(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    lines = read_lines(run / "metrics.jsonl")
    odd = [{f"mine_{i}_{j}": 1.0 for j in range(200)} | line for i, line in enumerate(lines)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in odd))
    told: list[str] = []
    read_runs([run], told.append)
    assert "left out: at least 1,000." in told[0]


@pytest.mark.parametrize(
    "name", ["$x^{$", "_hidden", "<script>", "emoji 🎮 名", "new\nline", os.fsdecode(b"no text \xff")]
)
def test_any_name_of_a_folder_is_drawn_as_it_stands(tmp_path, name):
    figure = draw(make_panels(read_runs([make_run(tmp_path / name, RISE)]), "return", "steps", 0), "steps", 0)
    picture = render(figure, "svg").decode()
    assert len(legend(figure)) == 1
    assert "<script" not in picture
    assert render(figure, "png").startswith(b"\x89PNG")


def test_pictures_are_written_in_both_forms_and_the_same_again(tmp_path, run_cli):
    run = make_run(tmp_path / "r", RISE)
    first = run_cli("plot", "r", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == "Saved r/plots/return-steps.png and r/plots/return-steps.svg.\n"
    pictures = {file.name: file.read_bytes() for file in (run / "plots").iterdir()}
    assert pictures["return-steps.png"].startswith(b"\x89PNG")
    assert b"<svg" in pictures["return-steps.svg"]
    assert pictures.keys() == {"return-steps.png", "return-steps.svg"}
    run_cli("plot", "r", cwd=tmp_path)
    assert (run / "plots" / "return-steps.svg").read_bytes() == pictures["return-steps.svg"]


def test_several_runs_are_drawn_where_the_user_is_and_their_numbers_written(tmp_path, run_cli):
    for seed in range(2):
        make_run(tmp_path / f"s{seed}", RISE, seed=seed, evaluations=[evaluation(1000, 5.0)])
    result = run_cli("plot", "s0", "s1", "--what", "all", "--x", "minutes", "--json", "n.json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "Saved plot-all-minutes.png and plot-all-minutes.svg and n.json.\n"
    numbers = json.loads((tmp_path / "n.json").read_text(), parse_constant=lambda text: pytest.fail(text))
    assert (numbers["x"], numbers["smoothing"], len(numbers["panels"])) == ("minutes of training", 0, 7)
    curve = numbers["panels"][0]["curves"][0]
    assert (curve["middle"][-1], [run["seed"] for run in curve["lines"]]) == (9, [0, 1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "nothing does not exist; name a run's folder."),
        (["r/config.yaml"], "r/config.yaml is a file; name the run's folder."),
        (["r", "bare"], "bare is no run's folder: it holds no config.yaml"),
        (["strange"], "strange is no run's folder: its config.yaml is no regular file"),
        (["empty"], "empty has no line of metrics: an agent that was kept without its log has none"),
        (["silent"], "There is nothing to plot yet: silent has logged no mean return of the last 100 games."),
        (["odd"], "odd/config.yaml names no environment"),
        (["circle"], "circle does not exist; name a run's folder."),
        (["broken"], "broken/config.yaml is not valid YAML"),
        (["r", "--out", "p.pdf"], "--out p.pdf must end in .png or .svg"),
        (
            ["r", "--out", "no/folder/p.png"],
            "no/folder cannot be made: No such file or directory; name another place with --out.",
        ),
        (["r", "--json", "no/folder/p.json"], "--json no/folder/p.json"),
        (["r", "--x", "hours"], "hours"),
        (["r", "--smooth", "-1"], "--smooth"),
        (["blocked"], "blocked/plots cannot be made"),
        (["half"], "half/plots/return-steps.svg is a folder, and a picture goes there"),
        ([], "RUN"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(tmp_path, run_cli, arguments, sentence):
    make_run(tmp_path / "r", RISE)
    make_run(tmp_path / "empty", [])
    make_run(tmp_path / "silent", [None] * 3)
    (make_run(tmp_path / "blocked", RISE) / "plots").write_text("a file")
    (make_run(tmp_path / "half", RISE) / "plots/return-steps.svg").mkdir(parents=True)
    (make_run(tmp_path / "odd", RISE) / "config.yaml").write_text("env: Pong\n1: 2\n")
    (make_run(tmp_path / "broken", RISE) / "config.yaml").write_text("env: [")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "bare").mkdir()
    (tmp_path / "strange/config.yaml").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    assert_one_sentence(run_cli("plot", *arguments, cwd=tmp_path), 2, sentence)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_target_that_cannot_be_written_is_one_sentence(tmp_path):
    figure = draw(make_panels(read_runs([make_run(tmp_path / "r", RISE)]), "return", "steps", 0), "steps", 0)
    with pytest.raises(UserError, match=r"cannot be written: .*\.$"):
        save(figure, [check_target(tmp_path / ("n" * 254 + ".png"))])


@pytest.mark.parametrize("command", ["plot", "report"])
def test_the_commands_do_not_import_tensorflow(tmp_path, command):
    make_run(tmp_path / "r", RISE)
    code = (
        f"import sys; from a2c.cli import app; app([{command!r}, 'r'], standalone_mode=False)\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules), 'imported'"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert result.returncode == 0, result.stderr
    assert re.match("Saved r/", result.stdout)
