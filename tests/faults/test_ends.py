"""A few of the ends of runs; ``python -m tests.faults.ends`` runs all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from tests.faults.ends import Ending, ending_of, full_disk, out_of_memory, struck, trials, vanishing

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount file systems and make control groups")


@needs_root
@pytest.mark.parametrize("kilobytes", [31, 162])  # in the plan, in the result
def test_a_full_disk_has_a_final_status_with_its_path(kilobytes: int) -> None:
    ending = ending_of(partial(full_disk, kilobytes, "simulate"))
    assert (ending.problem, ending.code, ending.state) == ("", 3, "failed")
    assert "/run/" in ending.message and "no space left on device; make room" in ending.message


def test_a_directory_that_vanishes_is_named() -> None:
    ending = ending_of(partial(vanishing, 0.0, "simulate"))
    assert ending.problem == ""
    assert "the run directory has gone" in ending.message


@pytest.mark.slow  # 80 s
@needs_root
@pytest.mark.parametrize("trial", trials(disks=4, signals=5, stops=1))
def test_each_ends_well(trial: Callable[[], Ending]) -> None:
    assert ending_of(trial).problem == ""


@pytest.mark.slow  # 20 s
def test_a_kill_of_the_host_is_told_apart_from_one_of_a_node() -> None:
    assert "host process ended with signal 9" in ending_of(partial(struck, 1, "host", "SIGKILL")).message
    assert "was killed by signal 9" in ending_of(partial(struck, 1, "node", "SIGKILL")).message


@pytest.mark.slow  # 15 s
@needs_root
def test_the_kernels_kills_are_told() -> None:
    assert "by the kernel, for want of memory" in ending_of(partial(out_of_memory, 700)).message
