"""The sandbox: status, signals, and that nothing survives its launcher."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulation.sandbox import Sandbox, is_inside
from tests.emulation.inside import ROOT
from tests.for_each import for_each

pytestmark = pytest.mark.emulation
GONE_DEADLINE_S = 240.0


def _of(token: str) -> set[int]:
    """Processes of this machine that carry ``token`` in their environment."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token.encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def _namespaces(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        try:
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
        except OSError:
            continue
    return found


def _inside(namespaces: set[str]) -> set[tuple[int, str]]:
    """Processes of any kind in one of ``namespaces``, with the moment of their start: numbers are given again."""
    return {(pid, _started(pid)) for pid in _all() if _namespaces({pid}) & namespaces}


def _alive(members: set[tuple[int, str]]) -> set[int]:
    """Those that can still do something: the kernel takes a second to bury one that has lost its memory."""
    return {pid for pid, started in members if _started(pid) == started and _command(pid)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _started(pid: int) -> str:
    """The moment in clock ticks since boot; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _all() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def _interfaces() -> str:
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    return links + subprocess.run(["tc", "qdisc"], capture_output=True, text=True, check=True).stdout


@for_each("rootless", [None, True])
def test_shared_memory_ends_with_the_sandbox(rootless: bool | None) -> None:
    """As MPICH's, whose files a killed ``mpirun`` would leave."""
    name = f"testbed-{os.getpid()}-{rootless}"
    code = (
        "import os; from multiprocessing.shared_memory import SharedMemory; "
        f"assert not os.listdir('/dev/shm'); made = SharedMemory({name!r}, create=True, size=1 << 20); "
        "room = os.statvfs('/dev/shm'); print(room.f_blocks * room.f_frsize, flush=True); os.kill(os.getpid(), 9)"
    )
    with Sandbox([sys.executable, "-c", code], rootless=rootless, stdout=subprocess.PIPE, text=True) as sandbox:
        room_bytes = int(sandbox.process.communicate(timeout=240)[0])
        assert sandbox.process.poll() == 128 + 9
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert room_bytes == pytest.approx(whole / 2, rel=0.01)
    assert not Path("/dev/shm", name).exists()


def test_status_and_emptiness() -> None:
    with Sandbox(["sh", "-c", "ls /sys/class/net; exit 7"], stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.process.communicate(timeout=240)[0].split() == ["lo"]
        assert sandbox.process.poll() == 7
    assert not is_inside()


@for_each("attempt", range(5))
def test_kill_9_of_the_launcher_leaves_nothing(attempt: int, tmp_path: Path) -> None:
    token, marker = f"testbed-kill-{os.getpid()}-{attempt}", tmp_path / "up"
    before = _interfaces()
    code = f"from tests.emulation.inside import start; start('lingering', seconds=60, marker={str(marker)!r}).wait(240)"
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"TESTBED_TEST": token})
    try:
        _let_it_get_somewhere(attempt, marker)
        ours = _of(token) - {os.getpid()}
        namespaces = _namespaces(ours) - _namespaces({os.getpid()})
        members = _inside(namespaces)
    finally:
        launcher.kill()
        launcher.wait()
    begin = time.monotonic()
    while (left := _of(token) | _alive(members)) and time.monotonic() < begin + GONE_DEADLINE_S:
        time.sleep(0.01)
    assert not left, f"still there: {left}"
    assert _interfaces() == before
    if attempt == 0:
        assert len(ours) > 15 and len(namespaces) > 12, "the network was not up, so the test shows nothing"
    print(f"gone after {(time.monotonic() - begin) * 1e3:.0f} ms")  # noqa: T201 - shown with -s


def _let_it_get_somewhere(attempt: int, marker: Path) -> None:
    """The first time until everything is up, then at any moment of the start."""
    if attempt:
        time.sleep(random.Random(attempt).uniform(0.05, 1.2))
        return
    deadline = time.monotonic() + 240
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert marker.exists()
