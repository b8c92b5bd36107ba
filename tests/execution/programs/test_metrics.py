"""Lines of a program, and the events that they become."""

from __future__ import annotations

import math
import os
from pathlib import Path

from testbed.execution.programs.metrics import FileTail, Metrics
from tests.for_each import for_each


def test_steps_become_rounds_and_accuracies_evaluations() -> None:
    metrics = Metrics(begin_s=1.0)
    first = list(metrics.take(b'{"step": 0, "loss": 2.5, "samples": 32}\nhello\n{"step": 0, "accur', 2.0))
    second = list(metrics.take(b'acy": 0.5}\n{"step": 1, "loss": 2, "seconds": 0.25}\n', 3.0))
    assert first == [
        ("round", {"t0": 1.0, "round": 0, "loss": 2.5, "steps": 1, "waited_s": 0.0, "samples": 32}),
    ]
    assert second == [
        ("evaluate", {"round": 0, "snapshot_t": 3.0, "accuracy": 0.5}),
        ("round", {"t0": 2.75, "round": 1, "loss": 2.0, "steps": 1, "waited_s": 0.0}),
    ]
    assert (metrics.last_step, metrics.last_loss) == (1, 2.0)


def test_an_evaluation_is_no_part_of_the_round_after_it() -> None:
    metrics = Metrics(begin_s=1.0)
    lines = (
        (b'{"step": 0, "loss": 1}', 10.0),
        (b'{"step": 0, "accuracy": 0.5, "seconds": 30}', 15.0),
        (b'{"step": 1}', 16.0),
    )
    events = [each for line, now_s in lines for each in metrics.take(line + b"\n", now_s)]
    assert [fields["t0"] for kind, fields in events if kind == "round"] == [1.0, 15.0]


def test_one_line_may_hold_both() -> None:
    kinds = [kind for kind, _ in Metrics(0.0).take(b'{"step": 3, "loss": 1, "accuracy": 0.9}\n', 1.0)]
    assert kinds == ["round", "evaluate"]


def test_other_lines_are_passed_over() -> None:
    lines = b'{"loss": 1}\n[1]\n{"step": true}\n{"step": "4"}\n{broken\n\xff\n{"step": NaN, "loss": 1}\n{}\n'
    assert list(Metrics(0.0).take(lines, 1.0)) == []


def test_a_loss_that_is_no_number_is_kept_as_such() -> None:
    ((_, fields),) = Metrics(0.0).take(b'{"step": 1, "loss": NaN}\n', 1.0)
    assert math.isnan(fields["loss"])


def test_a_file_is_followed_from_before_its_making_to_its_replacement(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = FileTail(path)
    assert tail.new() == b""
    path.write_bytes(b"one\n")
    assert tail.new() == b"one\n" and tail.new() == b""
    with path.open("ab") as file:
        file.write(b"two\n")
    assert tail.new() == b"two\n"
    path.write_bytes(b"new\n")
    assert tail.new() == b"new\n"


@for_each(
    ("then", "read"),
    [(b"old\nnew\n", b"new\n"), (b"new\n", b"new\n"), (b"n\n", b"n\n"), (b"old\n", b"")],
)
def test_what_another_run_has_written_is_passed_over(then: bytes, read: bytes, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"old\n")
    os.utime(path, (1e9, 1e9))
    tail = FileTail(path)
    assert tail.new() == b""
    if then != b"old\n":
        path.write_bytes(then)
    assert tail.new() == read and tail.new() == b""
    with path.open("ab") as file:
        file.write(b"more\n")
    assert tail.new() == b"more\n"


def test_numbers_that_no_table_can_hold_are_left_out() -> None:
    large = b"1" + b"0" * 400
    for line in (b'{"step": 1, "samples": NaN}', b'{"step": 1, "samples": ' + large + b"}"):
        ((_, fields),) = Metrics(0.5).take(line + b"\n", 1.0)
        assert "samples" not in fields and fields["t0"] == 0.5
    ((_, fields),) = Metrics(0.5).take(b'{"step": 1, "seconds": Infinity}\n', 1.0)
    assert fields["t0"] == 0.5
    assert list(Metrics(0.0).take(b'{"step": ' + large + b"}\n", 1.0)) == []
