"""Overload of the machine is reported as such."""

from __future__ import annotations

from testbed.realtime.overload import load_per_core, overload


def test_a_busy_machine_is_told_with_a_cure() -> None:
    assert overload(3.9) == ""
    assert "12 processes want each of its cores" in overload(12.2) and "timeouts.dead_after" in overload(12.2)


def test_the_load_is_that_of_the_cores_that_we_may_use() -> None:
    assert 0 <= load_per_core() < 10_000
