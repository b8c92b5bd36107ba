"""A user's file with changes: one line more, and the rest as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.scenario import load
from testbed.scenario.edited import edited
from tests.analysis.advise.small import TEXT

MINE = f"# my network\n{TEXT.strip()}  # measured\nsync: {{kind: hfa, k1: 3}}\ncodec: fp16\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    return path


def test_a_technique_is_one_line_more(mine: Path) -> None:
    found = edited(mine, ["technique=diloco"])
    assert found is not None
    wanted = [*MINE.splitlines()[:-2], "technique: diloco"]
    assert found.text.split() == "\n".join(wanted).split(), "but for where lines are broken"


def test_values_change_where_they_stand_and_the_file_says_what_overrides_say(mine: Path, tmp_path: Path) -> None:
    changes = ["technique=hfa", "sync.k1=2", "training.rounds=48", "run.on=local", "optimizer.learning_rate=0.01"]
    found = edited(mine, changes)
    assert found is not None and "# measured" in found.text
    other = tmp_path / "other.yaml"
    other.write_text(found.text, encoding="utf-8")
    assert load(other) == load(mine, changes)


def test_a_change_of_several_places_has_no_line_of_its_own(mine: Path) -> None:
    assert edited(mine, ["topology.links[*].rate=3 Mbit/s"]) is None
    assert edited(mine, ["run.on.deeper=1"]) is None


def test_classes_get_whole_paths_and_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "rtt.csv").write_text("a", encoding="utf-8")
    (tmp_path / "rate.csv").write_text("a", encoding="utf-8")
    (tmp_path / "net.yaml").write_text("links: [{between: [a, b], rate_trace: rate.csv}]", encoding="utf-8")
    path = tmp_path / "mine.yaml"
    topology = "topology: {use: ./net.yaml, measurements: [rtt.csv]}"
    path.write_text(f"{topology}\ntraining: {{model: ./net.py:Net, data: digits}}\n", "utf-8")
    found = edited(path, [])
    assert found is not None and found.files == (Path("net.yaml"), Path("rate.csv"), Path("rtt.csv"))
    assert f"model: {tmp_path.resolve()}/net.py:Net" in found.text
