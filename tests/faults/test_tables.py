"""The table of faults in the documents is that of the tests, with those that had passed when it was made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults import tables
from tests.faults.test_rows import ROWS, Row

_COUNT = re.compile(r"[0-9]+ of(?= [0-9])")  # how many had passed


def test_the_document_has_the_rows_and_tests_that_there_are() -> None:
    every = tables.table({test: True for row in ROWS.values() for test in row.tests})
    assert _COUNT.sub("of", tables.written()) == _COUNT.sub("of", every), "run python -m tests.faults.tables"


def test_a_test_that_did_not_pass_does_not_count() -> None:
    row = Row("a fault", "T", ("faults/test_a::test_b", "faults/test_a::test_c"), (), ("plan/test_d::test_e",))
    passed = {"faults/test_a::test_b": True, "faults/test_a::test_c": False}
    assert tables.shown(row, passed) == "| a fault | T | 1 of 2 |  | 0 of 1 |\n"


@pytest.mark.slow  # 3 s
def test_outcomes_are_those_of_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_one(n): assert n == %d or n == 1\n"
    (tmp_path / "tests").mkdir()
    for name, number in (("test_good", 2), ("test_bad", 3)):
        (tmp_path / "tests" / f"{name}.py").write_text(cases % number)
    (tmp_path / "tests" / "test_skipped.py").write_text("import pytest\n\n@pytest.mark.skip\ndef test_one(): pass\n")
    monkeypatch.setattr(tables, "TESTS", tmp_path / "tests")
    assert tables.run(["test_good::test_one", "test_bad::test_one", "test_skipped::test_one"]) == {
        "test_good::test_one": True, "test_bad::test_one": False, "test_skipped::test_one": False,
    }  # fmt: skip
