"""The first rounds of shipped scenarios: parameters, virtual times, bytes and rounds are those that are on file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import values
from tests.golden.__main__ import INCOMPARABLE
from tests.golden.first_rounds import cases

ROOT = Path(__file__).parents[2]
# Every folder that can be simulated in a second, every paradigm, and much of the other axes. ``python -m tests.golden``
# compares all scenarios.
A_TENTH = (
    "geomx/bi-sparse",
    "geomx/mixed-sync",
    "papers/p3-bandwidth",
    "paradigms/gossip-sgp",
    "paradigms/hitopk",
    "scripts/push_pull",
    "sync/ssp",
    "sync/streaming-diloco",
    "topologies/gaia-pair",
    "verdicts/dgt",
    "verdicts/gossip",
    "quickstart with tree",
)


def test_a_tenth_of_the_scenarios_does_what_it_did() -> None:
    """In a process of its own, as libraries choose their routines when they are loaded."""
    command = [sys.executable, "-m", "tests.golden", *A_TENTH, "--jobs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == INCOMPARABLE:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_shipped_scenario_has_golden_values() -> None:
    assert list(values.read()) == list(cases()), "python -m tests.golden --write NAME"


def test_a_difference_is_told_with_its_field_and_both_values() -> None:
    golden = {"status": "done", "parameters": "0a", "rounds_s": [1.0, 2.0], "bytes": {"a>b": 10, "b>a": 10}}
    found = {"status": "done", "parameters": "0b", "rounds_s": [1.0 + 1e-10, 2.5], "bytes": {"a>b": 11, "b>a": 10}}
    told = ["parameters: 0a -> 0b", "rounds_s[1]: 2.0 -> 2.5", "bytes a>b: 10 -> 11"]
    assert values.differences(golden, found) == told
    assert values.differences(golden, golden) == []
    assert values.differences({values.NOT_SIMULATED: "for one reason"}, {values.NOT_SIMULATED: "for another"}) == []
    assert values.differences({values.NOT_SIMULATED: "for one reason"}, golden) != []
