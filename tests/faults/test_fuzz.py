"""A few of the spoilt scenarios and frames; ``python -m tests.faults.fuzz`` reads thousands."""

from __future__ import annotations

import pytest

from tests.faults.fuzz import READERS, broken


def test_spoilt_scenarios() -> None:
    assert broken("scenario", range(100)) == []


def test_spoilt_frames() -> None:
    assert broken("frame", range(1000)) == []


def test_what_strangers_say_first() -> None:
    assert broken("hello", range(1000)) == []


@pytest.mark.slow
@pytest.mark.parametrize("what", sorted(READERS))
def test_ten_thousand(what: str) -> None:
    assert broken(what, range(10_000)) == []
