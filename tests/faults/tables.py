"""The table of faults in the documents, made from the tests that passed.

``python -m tests.faults.tables`` runs all tests that ``tests/faults/test_rows.py`` names, also slow ones, and writes
the rows whose tests have all passed into ``scenarios/faults/README.md``. ``--portion 1/4`` runs a quarter of the rows.
What the table says of the others stays. ``--report FILE …`` runs nothing, and reads what a run has reported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.faults.test_rows import ROWS, TESTS, Row

DOCUMENT = TESTS.parent / "scenarios" / "faults" / "README.md"
BEGIN, END = "<!-- table of faults: python -m tests.faults.tables -->\n", "<!-- end of the table -->\n"
_HEAD = "| fault | promise | in virtual time | for real | parts by themselves |\n|---|---|---|---|---|\n"
_LEVELS = (
    "Tests that had passed when this was written, of all. T: only time is lost. R: restored, with the same bits. "
    "D: goes on without. F: the run fails and says why."
)
Passed = dict[str, bool]  # by test


def shown(row: Row, passed: Passed) -> str:
    """The line of a row; counts are of the test functions that passed."""
    columns = [_count(tests, passed) for tests in (row.simulated, row.real, row.alone)]
    return f"| {row.fault} | {row.promise} | {' | '.join(columns)} |\n"


def _count(tests: tuple[str, ...], passed: Passed) -> str:
    return f"{sum(passed.get(test, False) for test in tests)} of {len(tests)}" if tests else ""


def table(passed: Passed) -> str:
    return f"{BEGIN}{_LEVELS}\n\n{_HEAD}{''.join(shown(row, passed) for row in ROWS.values())}{END}"


def written() -> str:
    """The table as it stands in the document."""
    text = DOCUMENT.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def run(tests: list[str]) -> Passed:
    """Run tests. Return which of them have passed."""
    files = sorted({f"{TESTS.name}/{test.split('::')[0]}.py" for test in tests})
    functions = " or ".join(sorted({test.split("::")[1] for test in tests}))  # some are in classes
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = ["-n0", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow", "-k", functions]
        command += [f"--junitxml={report}", *files]
        subprocess.run([sys.executable, "-m", "pytest", *command], cwd=TESTS.parent, check=False)
        return outcomes(report)


def outcomes(*reports: Path) -> Passed:
    """Read reports of pytest. A test has passed if it ran, and none of its cases failed."""
    found: dict[str, set[str]] = {}
    for case in (case for report in reports for case in ElementTree.parse(report).iter("testcase")):
        module = case.attrib["classname"].removeprefix(f"{TESTS.name}.").split(".Test")[0]
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        found.setdefault(f"{module.replace('.', '/')}::{case.attrib['name'].split('[')[0]}", set()).update(
            tags or {"passed"}
        )
    return {name: "passed" in tags and tags <= {"passed", "skipped"} for name, tags in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, nargs="+", help="take outcomes from these files (pytest --junitxml)")
    parser.add_argument("--portion", default="1/1", metavar="I/N", help="rows whose number leaves I - 1 over N")
    given = parser.parse_args()
    index, parts = map(int, given.portion.split("/"))
    chosen = [row for number, row in ROWS.items() if number % parts == index - 1]
    tests = [test for row in chosen for test in row.tests]
    passed = outcomes(*given.report) if given.report else run(tests)
    missing = sorted(test for test in tests if not passed.get(test))
    shown_to_hold = [row for row in chosen if not set(missing).intersection(row.tests)]
    if given.report:
        shown_to_hold = [row for row in chosen if any(passed.get(test) for test in row.tests)]
    before = DOCUMENT.read_text()
    lines = dict(zip(ROWS, written().splitlines(keepends=True)[-len(ROWS) - 1 : -1], strict=True))
    lines.update({number: shown(row, passed) for number, row in ROWS.items() if row in shown_to_hold})
    after = f"{BEGIN}{_LEVELS}\n\n{_HEAD}{''.join(lines.values())}{END}"
    DOCUMENT.write_text(before.replace(written(), after))
    what = "some of their tests passed" if given.report else "all of their tests passed"
    sys.stdout.write(f"{len(shown_to_hold)} of {len(chosen)} faults: {what}\n")
    if missing:
        sys.exit("not passed:\n" + "\n".join(missing))


if __name__ == "__main__":
    main()
