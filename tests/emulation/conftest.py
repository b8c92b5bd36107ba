"""Tests marked ``emulation`` are skipped, with the reason, where networks cannot be emulated."""

from __future__ import annotations

from functools import cache

import pytest

from tests.emulation.inside import skip_reason


@cache
def _reason() -> str | None:
    return skip_reason()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("emulation") and (reason := _reason()):
        pytest.skip(reason)
