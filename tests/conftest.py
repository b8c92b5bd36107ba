"""Which tests are slow (``pytest -m slow`` runs them), and which must not run beside each other.

With ``-n 2 --dist loadgroup`` a file's tests stay in one process, and so do all that emulate or measure real time: one
network at a time, beside tests that only compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

SLOW = ("engine/checkpoint", "engine/script", "engine/dgt", "engine/overlay", "engine/p3", "engine/kvstore", "run")
ONE_AT_A_TIME = (
    "emulation",
    "end_to_end",
    "engine/sync/test_worlds",
    "realtime",
    "cli/test_interrupts",
    "faults/test_real",
)
HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)  # around xdist's own, which reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        if place.startswith(tuple(f"{folder}/" for folder in SLOW)):
            item.add_marker(pytest.mark.slow)
        real = place.startswith(ONE_AT_A_TIME) or item.get_closest_marker("emulation")
        item.add_marker(pytest.mark.xdist_group("real time" if real else place))
    return (yield)
