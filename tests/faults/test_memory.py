"""A node that runs out of memory: with an exception, or by the kernel's hand."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.errors import NodeLost, RunFailed
from testbed.realtime.world import RealWorld
from testbed.results.oom_kills import OomKills
from tests.contract.tiny import REMOTE, WORKER
from tests.for_each import for_each
from tests.realtime.test_fleet import fleet, wait_long

SIZE = 3 << 30


async def greedy(world: RealWorld) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), -1))
    torch.ones(SIZE // 4)


async def taken_out(world: RealWorld) -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does it


def error_of(tmp_path: Path, role: Any) -> BaseException:
    with pytest.raises(RunFailed) as caught:
        fleet(tmp_path, {REMOTE: wait_long, WORKER: role}).run()
    return caught.value


def test_an_allocation_that_fails_names_node_and_size(tmp_path: Path) -> None:
    assert f"{WORKER}: RuntimeError" in (text := str(error_of(tmp_path, greedy))) and str(SIZE) in text


@for_each(
    ("after", "killer"),
    [
        (OomKills(0, 8), " (by itself or another process)"),
        (OomKills(1, 9), " (by the kernel, for want of memory)"),
        (OomKills(0, 9), " (while the kernel killed for want of memory)"),
        (OomKills(None, None), ""),
    ],
)
def test_who_killed_is_said_as_far_as_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: OomKills, killer: str
) -> None:
    counts = iter([OomKills(0, 8)])
    monkeypatch.setattr(OomKills, "now", lambda: next(counts, after))
    error = error_of(tmp_path, taken_out)
    assert isinstance(error, NodeLost) and str(error) == f"{WORKER} was killed by signal 9, SIGKILL{killer}"


def test_the_kernel_tells() -> None:
    assert OomKills.now().machine is not None
