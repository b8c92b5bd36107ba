"""Of the whole suite: the profiles of hypothesis, less garbage collection, and no waits for disks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from testbed.garbage import relaxed_garbage_collection

_CHECKS = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)
# The default suite draws the same few examples every time; ``-m slow`` draws many, other ones each time.
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True, suppress_health_check=_CHECKS)
settings.register_profile("thorough", max_examples=300, deadline=None, suppress_health_check=_CHECKS)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("thorough" if _is_thorough(config) else "ci")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``-m slow`` also runs all property tests, by the thorough profile."""
    if _is_thorough(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)


def _is_thorough(config: pytest.Config) -> bool:
    return bool(config.getoption("-m") == "slow")


@pytest.fixture(scope="session", autouse=True)
def _relaxed_garbage_collection() -> Iterator[None]:
    """A simulation looks through all objects of the process before and after; here, once before the first test.

    Modules of thousands of tests are many objects: 0.2 s a simulation, most of what a small one takes.
    """
    with relaxed_garbage_collection():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_disks() -> Iterator[None]:
    """Files are not forced to disk: 3 ms each, and no test cuts the power. Forked processes have it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
