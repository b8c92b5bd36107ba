"""Messages about processes that a signal has ended."""

from __future__ import annotations

from pathlib import Path

from testbed.results.failures import FailureFiles
from testbed.results.oom_kills import OomKills
from tests.for_each import for_each


@for_each(("number", "name"), [(9, "SIGKILL"), (34, "SIGRTMIN"), (40, "SIGRTMIN+6")])
def test_every_signal_has_a_name(tmp_path: Path, number: int, name: str) -> None:
    files = FailureFiles(tmp_path, tmp_path / "train.py")
    files.hidden("p", "place").write_text("a/worker0 0 train.py:7")
    node, cause = files.explain("p", -number, OomKills(None, None))
    assert (node, cause) == ("a/worker0", f"train.py:7: {name}: the process was killed")
