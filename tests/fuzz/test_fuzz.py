"""A few inputs of every kind; ``python -m tests.fuzz 100000`` reads many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.regular_file import read_regular
from tests.for_each import for_each
from tests.fuzz import stored
from tests.fuzz.kinds import KINDS, trials
from tests.fuzz.trial import DEFECTS, Input, judge, no_regular_file

COUNTS = {
    "text": 30,
    "structure": 20,
    "trace": 60,
    "graph": 40,
    "table": 30,
    "checkpoint": 6,
    "directory": 5,
    "job": 40,
    "frame": 300,
    "hello": 300,
    "resumed": 1,
}


@pytest.fixture(scope="module", autouse=True)
def _run_to_spoil() -> Iterator[None]:
    yield
    stored.forget()


def defects(kind: str, seeds: range) -> list[str]:
    found = [trial for trial in trials(kind, seeds) if trial.outcome in DEFECTS]
    return [f"python -m tests.fuzz --only {each.kind}/{each.seed}: {each.outcome}: {each.text}" for each in found]


@for_each("kind", KINDS)
def test_is_read_or_refused(kind: str) -> None:
    assert defects(kind, range(COUNTS[kind])) == []


@pytest.mark.slow  # 30 s together
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind: str) -> None:
    assert defects(kind, range(1_000_000, 1_000_000 + 30 * COUNTS[kind])) == []


def _raise(error: BaseException) -> None:
    raise error


def _wait() -> None:
    while True:
        pass


@for_each(
    ("made", "outcome"),
    [
        (Input(lambda: 1), "accepted"),
        (Input(lambda: 1, nonsense="1_0"), "nonsense"),
        (Input(lambda: _raise(KeyError("x"))), "raised"),
        (Input(lambda: _raise(ConnectionError("no file")), names=("f.csv",), refusals=(ConnectionError,)), "unnamed"),
        (Input(lambda: _raise(ConnectionError("f.csv:3")), names=("f.csv",), refusals=(ConnectionError,)), "refused"),
        (Input(_wait), "hung"),
    ],
)
def test_defects_are_noticed(made: Input, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.trial.LIMIT_S", 0.2)
    assert judge("x", 0, made).outcome == outcome


@for_each("number", range(6))
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, number: int) -> None:
    path = tmp_path / "f"
    no_regular_file(path, number)
    made = Input(lambda: read_regular(path), ("",), "no file", refusals=(OSError,))
    assert judge("x", 0, made).outcome == "refused"
