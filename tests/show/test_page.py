"""The page about runs: what it says, that nothing in a run's files becomes code, and how a browser takes it."""

import base64
import json
import os
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from conftest import draw_nothing, read_lines, small_config
from run_folders import evaluation, make_run

from a2c.algorithms.sections import DEFAULT, DQNSection
from a2c.config import dotted, dump_config, load_config, preset_names
from a2c.run.training import train
from a2c.show.commands import eval_command, train_command, watch_command
from a2c.show.page import LARGEST_VIDEO, MOST_ROWS, make_page, write_page
from a2c.show.runs import MOST_SETTINGS, read_runs

RISE = [float(i) for i in range(12)]
HOSTILE = "<script>alert('x')</script> & \" onload=\"alert(1)"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


class Page(HTMLParser):
    """A page's elements, their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def html_of(*paths: Path) -> str:
    """Without the pictures, which the browser sees."""
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        return make_page(read_runs(paths))


def page_of(*paths: Path) -> Page:
    return Page(html_of(*paths))


# --- what it says -----------------------------------------------------------------------------------------------------


def test_it_says_how_the_run_went(tmp_path):
    run = make_run(tmp_path / "r", RISE, evaluations=[evaluation(600, 4.0), evaluation(1200, 6.5)])
    text = page_of(run).text
    for words in ("6.50", "5.50 to 8.50", "11.00", "1,200", "4,800", "Pong: r", "sampled", "0.500", "noop max", "abc"):
        assert words in text, words
    assert "Protocol 1" in text
    assert "Protocol 2" not in text


def test_the_best_mean_counts_from_the_first_full_window(tmp_path):
    """Ten games a line: a lucky mean of the first ones is none of 100."""
    text = page_of(make_run(tmp_path / "r", [50.0, *[3.0] * 9, 4.0, 2.0])).text
    assert re.search(r"best mean of 100\s*4\.00", text)


def test_charts_have_the_words_of_the_runs_own_algorithm(tmp_path):
    """TRPO's policy loss is that after the step; A2C's is not."""
    named = {image["alt"] for image in page_of(make_run(tmp_path / "a", RISE)).all("img")}
    assert "policy loss over agent steps: a" in named
    trpo = {"algorithm": {"name": "trpo", "value_minibatches": 8}, "model": {"separate_value": True}}
    named = {image["alt"] for image in page_of(make_run(tmp_path / "t", RISE, **trpo)).all("img")}
    assert "policy loss after the step over agent steps: t" in named


def test_a_run_without_seconds_has_its_charts_over_steps(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    lines = read_lines(run / "metrics.jsonl")
    text = "".join(json.dumps({key: x for key, x in line.items() if key != "seconds"}) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text)
    named = [image["alt"] for image in page_of(run).all("img")]
    assert "mean return of the last 100 games over agent steps: r" in named
    assert not [name for name in named if "minutes" in name]


def test_evaluations_have_a_chart_before_the_first_training_game_ended(tmp_path):
    run = make_run(tmp_path / "r", [None] * 9, evaluations=[evaluation(600, 4.0)])
    page = page_of(run)
    assert "mean return of the last 100 games over agent steps: r" in [image["alt"] for image in page.all("img")]
    assert "evaluation: mean of 20 whole games" in page.text


def test_the_legend_names_what_a_run_did_not_log(tmp_path):
    paths = [make_run(tmp_path / "a", RISE), make_run(tmp_path / "b", [None] * 9, seed=1)]
    text = page_of(*paths).text
    assert "a, b: median of 2 seeds" in text
    assert "mean return of the last 100 games: b logged nothing of it" in text


def test_evaluations_under_another_protocol_are_told_apart(tmp_path):
    other = evaluation(1200, 1.0, protocol={"sticky_action_probability": 0.0})
    text = page_of(make_run(tmp_path / "r", RISE, evaluations=[evaluation(600, 4.0), other])).text
    assert "Protocol 2" in text


def test_what_differs_from_the_defaults_is_marked(tmp_path):
    page = html_of(make_run(tmp_path / "r", RISE, optimizer={"learning_rate": 0.123}))
    marked = re.findall(r'<tr class="changed"><th scope="row">([\w.]+) \*</th><td>([^<]*)</td><td>([^<]*)</td>', page)
    wanted, defaults = (dotted(dump_config(config)) for config in (small_config(), load_config(config="atari")[0]))
    assert ("optimizer.learning_rate", "0.123", "0.0007") in marked
    assert {key for key, *_ in marked} == {key for key in wanted if wanted[key] != defaults[key]} | {
        "optimizer.learning_rate"
    }


def test_an_algorithm_is_compared_with_its_own_defaults(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    values = load_config(config="dqn")[0].model_dump(mode="json")
    values["algorithm"]["target_update"] += 1
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    page = html_of(run)
    row = r'<tr class="changed"><th scope="row">algorithm\.([\w.]+) \*</th><td>([^<]*)</td><td>([^<]*)</td>'
    marked = {key: (value, default) for key, value, default in re.findall(row, page)}
    defaults = {**DQNSection().model_dump(mode="json"), "name": DEFAULT}
    assert marked.keys() == {key for key, value in defaults.items() if values["algorithm"][key] != value}
    assert marked["name"] == ("dqn", "a2c")
    assert marked["target_update"] == (str(defaults["target_update"] + 1), str(defaults["target_update"]))
    assert not re.search("gae_lambda|entropy_coef", page)


def test_of_an_algorithm_of_ones_own_no_default_is_known_but_that_of_its_name(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    values = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({**values, "algorithm": {"name": "mine:Own", "pace": 3}}))
    text = page_of(run).text
    assert "algorithm.name *mine:Owna2c\n" in text
    assert "algorithm.pace *3-\n" in text
    assert "gae_lambda" not in text


def test_a_run_whose_wrappers_have_keys_of_two_kinds_is_shown(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["env"]["wrappers"] = [{1: 2, "a": 3}]
    values[1] = 2
    (run / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    assert "1: 2" in html_of(run)


def test_several_runs_stand_side_by_side(tmp_path):
    page = page_of(*(make_run(tmp_path / f"s{seed}", RISE, seed=seed) for seed in (0, 1)))
    assert "Pong: 2 runs" in page.text
    assert len(page.all("h2")) == 4
    assert re.search(r"s0\s*Pong\s*0\s*none.*s1\s*Pong\s*1\s*none", page.text, re.DOTALL)


# --- the commands that make it again ----------------------------------------------------------------------------------


def trained_with(command: str):
    """The configuration that `a2c train` makes of a command's words."""
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("a2c", "train")
    flags: dict[str, list[str]] = {}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        flags.setdefault(flag, []).append(value)
    assert flags.keys() <= {"--env", "--config", "--steps", "--seed", "--set"}
    numbers = {"total_env_steps": "--steps", "seed": "--seed"}
    return load_config(
        config=flags["--config"][0] if "--config" in flags else None,
        env_id=flags["--env"][0],
        overrides={key: int(flags[flag][0]) for key, flag in numbers.items() if flag in flags},
        assignments=flags.get("--set", []),
    )[0]


CONFIGS = {
    "preset": load_config(env_id="Pong", overrides={"seed": 7, "total_env_steps": 1000})[0],
    "another preset": load_config(config="machado", env_id="Qbert")[0],
    "all but the algorithm of another algorithm's preset": load_config(
        env_id="Breakout",
        overrides={
            key: value
            for key, value in dotted(dump_config(load_config(config="breakout-ppo", env_id="Breakout")[0])).items()
            if not key.startswith("algorithm.")
        },
    )[0],
    "a small number and a word in a wrapper's arguments": small_config(
        env={"id": "Catch", "wrappers": [{"mine:Own": {"scale": 1e-05, "word": "on"}}]}
    ),
    "far from all": small_config(
        env={"id": "some.module:Env-v0", "reward_clipping": "none"},
        optimizer={"epsilon": 1e-9, "learning_rate": 3.0000000000000004e-05, "schedule": "linear"},
        model={"name": "mlp", "hidden_sizes": []},
        runtime={"mode": "eager"},
    ),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_command_gives_the_same_configuration(config):
    assert trained_with(train_command(config)) == config


def test_the_command_of_several_workers_launches_them():
    config = small_config(env={"id": "Pong"}, runtime={"strategy": "multiworker", "workers": 2})
    launch = "a2c launch --workers 2 -- "
    assert train_command(config).startswith(launch)
    alone = small_config(env={"id": "Pong"})
    assert trained_with(f"a2c {train_command(config).removeprefix(launch)}") == alone


def test_the_command_is_short_where_a_preset_is_near():
    assert train_command(CONFIGS["preset"]) == "a2c train --env Pong --seed 7 --steps 1000"
    assert train_command(CONFIGS["another preset"]) == "a2c train --env Qbert --config machado --seed 0"
    assert "machado" in preset_names()


def test_a_configuration_of_another_version_is_no_reason_to_say_nothing_else(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["evaluation"]["every_updates"] = 5
    del values["schema"]
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    text = page_of(run).text
    assert "The command that trains it cannot be given here" in text
    assert "evaluation.every_updates" in text
    assert f"a2c eval {run}" in text


def test_of_too_many_evaluations_the_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("a2c.show.runs.MOST_EVALUATIONS", 2)
    run, told = make_run(tmp_path / "r", RISE, evaluations=[evaluation(i, float(i)) for i in (1, 2, 3, 4)]), []
    (read,) = read_runs([run], told.append)
    assert [each.mean for each in read.evaluations] == [3, 4]
    assert told == [f"{run / 'evaluations.jsonl'}: only the last 2 evaluations are shown; 2 are left out."]


def test_the_games_of_the_last_evaluation_are_played_again(tmp_path):
    run = make_run(tmp_path / "a run", RISE, evaluations=[evaluation(1, 1.0), evaluation(2, 1.0, policy="greedy")])
    (read,) = read_runs([run])
    assert eval_command(read) == f"a2c eval '{run}' --episodes 20 --greedy --seed 3"


def test_a_command_takes_no_folder_for_an_option(tmp_path, monkeypatch):
    make_run(tmp_path / "-x", RISE)
    monkeypatch.chdir(tmp_path)
    (read,) = read_runs([Path("-x")])
    assert (eval_command(read), watch_command(read)) == ("a2c eval ./-x", "a2c watch ./-x")


# --- nothing from outside ---------------------------------------------------------------------------------------------


def hostile_run(tmp_path: Path) -> Path:
    """Tags and quotes wherever a run's files hold a text, its folder's name included."""
    bad = evaluation(600, 4.0, policy=HOSTILE, protocol={HOSTILE: HOSTILE})
    run = make_run(tmp_path / HOSTILE.replace("/", "|"), RISE, evaluations=[bad])
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["env"]["id"] = HOSTILE
    values["provenance"] = {"git": HOSTILE, HOSTILE: 1}
    values |= {HOSTILE: HOSTILE, "model": {HOSTILE: [HOSTILE]}}
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    (run / "videos").mkdir()
    (run / "videos" / f"{HOSTILE.replace('/', '|')}.mp4").write_bytes(b"film")
    return run


def test_no_text_of_a_run_becomes_code(tmp_path):
    page, plain = page_of(hostile_run(tmp_path)), page_of(make_run(tmp_path / "r", RISE))
    assert not page.all("script")
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"video", "figcaption"}
    assert HOSTILE in page.text
    handlers = [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert handlers == []


def test_a_folder_whose_name_is_no_text_has_a_page_all_the_same(tmp_path):
    target = tmp_path / "report.html"
    write_page(read_runs([make_run(tmp_path / os.fsdecode(b"\xff"), RISE)]), target)
    assert r"Pong: \udcff" in target.read_text()


def test_it_needs_nothing_from_anywhere(tmp_path):
    page = page_of(make_run(tmp_path / "r", RISE))
    sources = [
        attributes.get(name) for _, attributes in page.elements for name in ("src", "href") if name in attributes
    ]
    assert sources
    assert all(source.startswith("data:") for source in sources)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert all("alt" in image for image in page.all("img"))  # "" for the signs of a legend, whose text stands beside


def test_the_newest_video_that_is_not_too_large_is_inside(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    assert f"a2c watch {run}" in page_of(run).text
    videos = run / "videos"
    videos.mkdir()
    for age, (name, content) in enumerate(
        [("large", b"l" * (LARGEST_VIDEO + 1)), ("new", b"new"), ("old", b"old")], start=1
    ):
        (videos / f"{name}.mp4").write_bytes(content)
        os.utime(videos / f"{name}.mp4", (1e9 - age, 1e9 - age))
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (videos / "link.mp4").symlink_to(secret)
    (video,) = page_of(run).all("video")
    assert base64.b64decode(video["src"].removeprefix("data:video/mp4;base64,")) == b"new"


def test_a_film_that_no_name_leads_to_is_passed_over(tmp_path):
    run = make_run(tmp_path / "r", RISE)
    (run / "videos").mkdir()
    (run / "videos" / "z.mp4").symlink_to("x" * 300)
    assert page_of(run).all("video") == []
    (run / "videos" / "a.mp4").write_bytes(b"film")
    assert len(page_of(run).all("video")) == 1


def test_of_many_evaluations_the_last_are_shown(tmp_path):
    run = make_run(tmp_path / "r", RISE, evaluations=[evaluation(i, float(i)) for i in range(1, MOST_ROWS + 2)])
    text = page_of(run).text
    assert f"These are the last {MOST_ROWS}; 1 earlier ones are left out." in text
    assert re.search(rf"^{MOST_ROWS + 1}{MOST_ROWS + 1}\.00", text, re.MULTILINE)
    assert not re.search(r"^11\.00", text, re.MULTILINE)
    lines = (run / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (run / "evaluations.jsonl").write_text("".join(lines[1:]))
    text = page_of(run).text
    assert "left out" not in text
    assert re.search(r"^22\.00", text, re.MULTILINE)


def test_a_long_protocol_says_what_it_leaves_out(tmp_path):
    settings = {f"rule_{i}": i for i in range(MOST_SETTINGS + 3)}
    text = page_of(make_run(tmp_path / "r", RISE, evaluations=[evaluation(600, 4.0, protocol=settings)])).text
    assert f"rule {MOST_SETTINGS - 1}" in text
    assert f"rule {MOST_SETTINGS}" not in text
    assert re.search(r"and more\s*3 are left out", text)


def test_the_command_writes_the_page_of_one_run_into_its_folder(tmp_path, run_cli, monkeypatch):
    make_run(tmp_path / "r", RISE)
    make_run(tmp_path / "s", RISE)
    result = run_cli("report", "r", cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "Saved r/report.html.\n", "")
    assert (tmp_path / "r" / "report.html").read_text().startswith("<!DOCTYPE html>")
    draw_nothing(monkeypatch)  # the first command has drawn
    assert run_cli("report", "r", "s", cwd=tmp_path).stdout == "Saved report.html.\n"
    bad = run_cli("report", "r", "--out", "no/folder/r.html", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "a2c: no/folder/r.html cannot be written: No such file or directory.\n"


# --- a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium that logs its console and its requests."""
    from selenium import webdriver  # here, since it is of the integration tests alone
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-sync"
    for flag in [*flags.split(), "disable-component-update", "disable-dev-shm-usage"]:
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.get("about:blank")
    driver.get_log("browser")  # forgets what the browser's first page complained of, which wants a network
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> list[Path]:
    """The page of a run that was really trained and judged, one of several runs, and one of hostile files."""
    folder = tmp_path_factory.mktemp("pages")
    catch = folder / "catch"
    judged = {"every_env_steps": 200, "episodes": 4}
    train(small_config(env={"id": "Catch"}, total_env_steps=640, evaluation=judged), catch)
    several = [make_run(folder / f"a-run-with-a-long-name-{seed}", RISE, seed=seed) for seed in range(3)]
    groups = {"one": [catch], "several": [catch, *several], "hostile": [hostile_run(folder)]}
    for name, paths in groups.items():
        write_page(read_runs(paths), folder / f"{name}.html")
    return [folder / f"{name}.html" for name in groups]


def requests_from(browser, page: Path) -> tuple[dict[str, str], set[str], set[str]]:
    """The addresses asked for, by request, from that of a page on; and all requests answered and failed.

    What the browser's first tab asked for before, of a network that may not be there, is no request of the page.
    """
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent, answered, failed = (
        [event["params"] for event in events if event["method"] == f"Network.{name}"]
        for name in ("requestWillBeSent", "responseReceived", "loadingFailed")
    )
    asked = [(request["requestId"], request["request"]["url"]) for request in sent]
    first = [url for _, url in asked].index(page.as_uri())
    return dict(asked[first:]), {r["requestId"] for r in answered}, {r["requestId"] for r in failed}


@pytest.mark.integration
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_whole_without_a_complaint(browser, pages, width, scheme):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    for page in pages:
        browser.get(page.as_uri())
        assert browser.get_log("browser") == []
        asked, answered, failed = requests_from(browser, page)
        assert asked.keys() & answered
        assert not asked.keys() & failed
        assert not [url for url in asked.values() if not url.startswith(("data:", "file:"))]
        root = "document.documentElement"
        whole, visible, window = browser.execute_script(
            f"return [{root}.scrollWidth, {root}.clientWidth, window.innerWidth]"
        )
        assert whole == visible  # which is the window less its scroll bar
        assert window == width
        drawn = browser.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth > 20)")
        assert drawn
        assert all(drawn)
        charts = browser.execute_script(
            "return [...document.querySelectorAll('.charts img')].map(i => "
            "{const r = i.getBoundingClientRect(); return [r.left, r.right, r.width / i.naturalWidth]})"
        )
        assert charts
        assert all(left >= 0 and right <= width and scale > 0.75 for left, right, scale in charts)  # whole and readable
        if width == 1280 and len(charts) >= 3:
            assert max(right for _, right, _ in charts) - min(left for left, _, _ in charts) > 0.85 * width
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
