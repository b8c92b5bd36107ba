"""Run directories whose files were exchanged or damaged are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.load import load_run
from testbed.errors import TestbedError
from testbed.results import tables
from tests.for_each import for_each
from tests.results.fake_run import make_run


def test_tables_are_found_from_another_working_directory(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    opened, whole = load_run(Path(run.name)), load_run(run)
    monkeypatch.chdir(tmp_path)
    assert len(opened.tables["rounds"]) == len(whole.tables["rounds"]) > 0
    with pytest.raises(TestbedError, match="gone: has neither tables nor events"):
        tables.read(tmp_path / "gone")


def test_a_misspelt_table_is_refused_with_the_one_that_is_near(run: Path) -> None:
    with pytest.raises(KeyError, match="there is no table 'roundz'; did you mean 'rounds'"):
        load_run(run).tables["roundz"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def test_an_exchanged_plan_is_noticed(run: Path) -> None:
    text = (run / "plan.json").read_text()
    try:
        (run / "plan.json").write_text(text.replace('"seed": 1', '"seed": 2', 1))
        with pytest.raises(TestbedError, match=r"plan.json: damaged .it is not the plan that status.json names"):
            load_run(run)
    finally:
        (run / "plan.json").write_text(text)


@for_each(
    ("name", "key", "value", "says"),
    [
        ("manifest", "machine", 3, "Expected `object`, got `int` - at `\\$.machine`"),
        ("manifest", "argv", [1], "at `\\$.argv"),
        ("status", "state", "well", "Invalid enum value 'well'"),
        ("plan", "nodes", 1, "at `\\$.nodes`"),
        ("plan", "back_end", "moon", "at `\\$.back_end`"),
        ("result", "rounds", "8", "at `\\$.rounds`"),
    ],
)
def test_fields_are_checked(run: Path, name: str, key: str, value: object, says: str) -> None:
    path = run / f"{name}.json"
    text = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(text) | {key: value}))
        with pytest.raises(TestbedError, match=rf"{name}\.json: damaged .*{says}"):
            load_run(run)
    finally:
        path.write_text(text)


def test_a_damaged_table_is_made_again(run: Path) -> None:
    path = run / "tables" / "rounds.parquet"
    data, whole = path.read_bytes(), tables.read(run, ("rounds",))["rounds"]
    for spoilt in (data[:-20], data[:40] + bytes([data[40] ^ 8]) + data[41:], b""):
        path.write_bytes(spoilt)
        assert tables.read(run, ("rounds",))["rounds"].equals(whole)
