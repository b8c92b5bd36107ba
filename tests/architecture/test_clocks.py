"""Who decides about time reads a clock that does not jump: neither the date, nor one that somebody may set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "testbed"
DECIDING = ("engine", "policy", "plan", "realtime", "simulation", "kvstore", "world.py", "messages.py")
WALL = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "today"), ("datetime", "utcnow")}


def readings(text: str) -> Iterator[str]:
    """Calls of a clock that may jump. Most modules name none, and need not be parsed."""
    if not any(clock in text for _, clock in WALL):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if (name, node.func.attr) in WALL:
                yield f"line {node.lineno}: {name}.{node.func.attr}"


def files() -> Iterator[Path]:
    for room in DECIDING:
        place = PACKAGE / room
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def test_no_decision_reads_the_date() -> None:
    read = {str(path.relative_to(PACKAGE)): list(readings(path.read_text())) for path in files()}
    assert len(read) > 100 and {name: found for name, found in read.items() if found} == {}


def test_that_rule_sees_what_it_forbids() -> None:
    assert list(readings("import time\ntime.monotonic()\ntime.time()")) == ["line 3: time.time"]
    assert list(readings("datetime.datetime.now()")) == ["line 1: datetime.now"]
