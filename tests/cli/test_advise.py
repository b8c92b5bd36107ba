"""``testbed advise``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import testbed
from analysis.advise import advising
from tests.analysis.advise.small import TEXT
from tests.cli.forked import command


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_command_ranks_writes_and_confirms(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--techniques", "fsa,fp16", "--simulations", "8", "--jobs", "1", "--out", str(out), "--confirm", "1"]
    ended = command(["advise", str(scenario), *words, "--on", "simulate", "--json"])
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert "is the quickest to 70 % accuracy" in told["conclusion"][0]
    assert "A whole run of" in told["conclusion"][-1]
    assert {row["name"] for row in told["rows"]} == {"fsa (as written)", "fp16"}
    assert all(Path(path).is_file() for path in told["files"])
    run = testbed.open_run(next(path for path in out.iterdir() if path.is_dir()))
    assert run.status.state == "done"

    question = ["advise", str(scenario), "--techniques", "fsa", "--simulations", "2", "--jobs", "1", "--out", str(out)]
    refused = command(question)
    assert refused.returncode == 2 and "holds an advice; --again replaces it" in refused.stderr
    (out / "2-mine.yaml").write_text("the user's own", encoding="utf-8")
    assert command([*question, "--again"]).returncode == 0
    assert sorted(path.name for path in out.glob("?-*.yaml")) == ["1-fsa-as-written.yaml", "2-mine.yaml"]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_interrupted_search_says_so_by_its_exit_code(
    more: list[str], scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = advising.advise
    monkeypatch.setattr(advising, "advise", lambda *given: replace(whole(*given), notes=(advising.INTERRUPTED,)))
    words = ["--techniques", "fsa", "--simulations", "2", "--jobs", "1", "--out", str(tmp_path / "out"), *more]
    assert command(["advise", str(scenario), *words]).returncode == 130


def test_words_that_say_nothing_end_with_a_cure(scenario: Path) -> None:
    for words, told in (
        (["--goal", "losses=2"], "not a goal"),
        (["--techniques", "fsaa"], "did you mean 'fsa'"),
        (["--budget", "0"], "--budget"),
        (["--budget", "nan"], "a budget of nan s"),
        (["--simulations", "0"], "at least 1"),
        (["--confirm", "-1"], "--confirm -1: at least 1"),
    ):
        ended = command(["advise", str(scenario), *words])
        assert ended.returncode == 2 and told in ended.stderr, ended.stderr
