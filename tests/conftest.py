"""Which tests are slow: those that run many whole trainings in real processes. ``pytest -m slow`` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

SLOW = ("engine/checkpoint", "engine/script", "engine/dgt", "engine/overlay", "engine/p3", "engine/kvstore", "run")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        if place.startswith(tuple(f"{folder}/" for folder in SLOW)):
            item.add_marker(pytest.mark.slow)
