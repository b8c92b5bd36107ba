"""The report is one file that loads nothing, is well-formed, and says what the runs say."""

import copy
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from analysis.load import StoredRun, load_run
from analysis.report.page import page, without_folders
from testbed.cli import main as command
from testbed.errors import ScenarioError
from tests.results.fake_run import make_run

VOID = {"meta", "br", "path", "use", "rect", "image"}
HOSTILE = "<script>alert(1)</script>"
DIVERGED = {"status": "diverged", "message": "the training diverged: the loss rose from 2 to 9"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    made = load_run(make_run(tmp_path_factory.mktemp("runs") / "one"))
    return replace(made, plan={**made.plan, "name": HOSTILE})


@pytest.fixture(scope="module")
def text(run: StoredRun) -> str:
    return page([run])


def without_pictures(patch: pytest.MonkeyPatch) -> None:
    """Figures are made, but neither laid out nor rendered: nine tenths of a page's time."""
    patch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda engine, figure: None)
    patch.setattr(Figure, "savefig", lambda figure, stream, **options: stream.write("<svg></svg>"))


@pytest.fixture(scope="module")
def odd(run: StoredRun) -> str:
    """The page of a run that has diverged, goes on from another, and whose network is large."""
    plan: dict[str, Any] = copy.deepcopy(run.plan)
    plan["network"]["routers"] = [f"hub{number}" for number in range(40)]
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        return page([replace(run, plan=plan, result=(run.result or {}) | DIVERGED | {"resumed_round": 3})])


@pytest.fixture(scope="module")
def several(run: StoredRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of this run and of another one, which has diverged and goes on from a third."""
    other = load_run(make_run(tmp_path_factory.mktemp("runs") / "other", sync="hfa", seed=2))
    changed = replace(other, result=(other.result or {}) | {"status": "diverged", "resumed_round": 3})
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        return page([run, changed])


def test_a_diverged_run_is_called_so_with_its_cause(odd: str) -> None:
    alone = " ".join(read(odd).words)
    assert "diverged run" in alone and DIVERGED["message"] in alone
    assert "steps per worker 8" not in alone and "8 steps per worker" in alone
    assert "badge.diverged" in odd


class Reader(HTMLParser):
    """Collects tags, attributes and words; counts what is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_it_is_well_formed(text: str) -> None:
    assert read(text).open == []


def test_it_loads_nothing(text: str) -> None:
    reader = read(text)
    assert not {"script", "link", "iframe", "object", "embed", "audio", "video"} & {tag for tag, _ in reader.attributes}
    for _, attributes in reader.attributes:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith("#"), attributes
    assert not re.search(r"url\((?!#)|@import|@font-face", text)


def test_every_reference_in_a_picture_is_found(text: str) -> None:
    named = [attributes.get("id") for _, attributes in read(text).attributes if attributes.get("id")]
    assert len(named) == len(set(named)), "two pictures share an id"
    wanted = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    assert wanted <= set(named)


def test_it_says_what_the_run_says(text: str, run: StoredRun) -> None:
    words = read(text).words
    assert run.result is not None
    assert f"{run.result['accuracy'] * 100:.3g} %" in words
    assert str(run.result["rounds"]) in words
    for title in (
        "Topology and link load",
        "Waiting, by data centre",
        "Timeline",
        "Links over time",
        "Accuracy over WAN traffic",
        "Time of a round, by node",
        "What ran on what",
    ):
        assert title in words
    for warning in run.result["fidelity"]["notes"]:
        assert warning in words


def test_names_cannot_break_out_of_the_page(text: str) -> None:
    assert HOSTILE in read(text).words and "<script" not in text


def test_several_runs_are_compared(several: str) -> None:
    words = read(several).words
    note = "Speed-up against the first run; a run that missed the target has none. WAN is that of the whole run"
    assert any(word.startswith(note) for word in words)
    assert any(word.startswith("FSA, emulated reached 80 % accuracy soonest.") for word in words)
    assert "HFA, emulated" in words
    assert "diverged" in " ".join(words)


def test_a_run_without_rounds_is_refused(tmp_path: Path) -> None:
    empty = load_run(make_run(tmp_path / "empty", rounds=0))
    with pytest.raises(ScenarioError, match="no result with a completed round"):
        page([empty])


def test_the_verb_writes_it_into_the_run(
    run: StoredRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.report.page.page", lambda runs, *more: "<!doctype html> of it")
    assert command.main(["report", str(run.path)]) == 0
    assert capsys.readouterr().out.strip() == str(run.path / "report.html")
    assert (run.path / "report.html").read_text().startswith("<!doctype html>")


def test_no_folder_of_the_author_is_in_a_page() -> None:
    told = "link a>b: file /home/ann/net/evening.csv; 20/30 Mbit/s and https://a.b/c/d.html"
    assert without_folders(told) == "link a>b: file evening.csv; 20/30 Mbit/s and https://a.b/c/d.html"
