"""What the host process of a run, and users' programs, are started with."""

from __future__ import annotations

import resource

import pytest

from testbed import environment
from tests.for_each import for_each


@for_each("allowed", [3000, 4 << 20])
def test_as_many_files_may_be_open_as_the_machine_allows_but_no_more_than_a_million(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """Programs that close all numbers that they may have would take minutes for those of a container."""
    limits = [(1024, allowed)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: limits.append(limit))
    for _ in range(2):
        environment.allow_descriptors()
    assert limits == [(1024, allowed), (min(allowed, 1 << 20), allowed)]


@for_each("users", ["", "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=2"])
def test_a_users_program_has_the_users_tunables_alone(monkeypatch: pytest.MonkeyPatch, users: str) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", users)
    monkeypatch.setenv("GLIBC_TUNABLES", environment.host_environment()["GLIBC_TUNABLES"])
    assert environment.program_environment().get("GLIBC_TUNABLES", "") == users
