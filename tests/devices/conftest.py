"""A machine with GPUs: the driver's command as a script, and a processor in the place of a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.devices import stand_in

Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return what puts GPUs of so many MiB of free memory each into this machine."""

    def make(*free_mib: int) -> None:
        folder = tmp_path / "driver"
        folder.mkdir(exist_ok=True)
        lines = [
            f"{index}, GPU-{index}0000-aaaa, NVIDIA H200, 570.86.15, 143771, {free}, 9.0"
            for index, free in enumerate(free_mib)
        ]
        script = folder / "nvidia-smi"
        script.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return make


@pytest.fixture
def gpu(machine: Machine) -> Iterator[None]:
    """Let a GPU be here, for which the processor stands in."""
    machine(140_000)
    with stand_in.standing_in():
        yield
