"""Runs one case of ``tests.emulation.cases`` inside a sandbox and hands its JSON result back to the test outside."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

from emulation.mininet_nodes import import_mininet
from emulation.probe import Capabilities, probe
from emulation.sandbox import Sandbox
from testbed.processes.first import mount_own

ROOT = Path(__file__).resolve().parent.parent.parent
_NEW_MOUNTS, _NEW_NETWORK = 0x0002_0000, 0x4000_0000  # CLONE_NEWNS, CLONE_NEWNET; os.unshare comes with Python 3.12


def start(case: str, *, rootless: bool | None = None, **arguments: Any) -> Sandbox:
    """Start a case; its result is one line on the sandbox' standard output."""
    argv = [sys.executable, "-m", "tests.emulation.inside", case, json.dumps(arguments)]
    return Sandbox(argv, rootless=rootless, cwd=ROOT, stdout=-1, text=True)


def finish(sandbox: Sandbox, deadline_s: float = 60.0) -> Any:
    """The result of a started case."""
    with sandbox:
        output, _ = sandbox.process.communicate(timeout=deadline_s)
    assert sandbox.process.poll() == 0, f"the case ended with {sandbox.process.poll()}"
    return json.loads(output.splitlines()[-1])


def run(case: str, *, rootless: bool | None = None, **arguments: Any) -> Any:
    """Run a case to its end."""
    return finish(start(case, rootless=rootless, **arguments))


class WarmSandbox:
    """A sandbox in which one process imports all and forks for each case: half a second of the processor less.

    Each case has network and mount namespaces of its own, and whatever process it leaves behind is killed.
    """

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "tests.emulation.inside"]
        self._sandbox: Sandbox | None = Sandbox(argv, cwd=ROOT, stdin=-1, stdout=-1, text=True)

    def run(self, case: str, deadline_s: float = 60.0, **arguments: Any) -> Any:
        """Run a case to its end; return its result. No further case runs after one that is late."""
        assert self._sandbox is not None, "the sandbox has ended"
        process = self._sandbox.process
        process.stdin.write(json.dumps([case, arguments]) + "\n")
        process.stdin.flush()
        late = Timer(deadline_s, process.kill)
        late.start()
        try:
            result, status = process.stdout.readline(), process.stdout.readline()
        finally:
            late.cancel()
        assert status, f"{case} did not end in {deadline_s:g} s"
        assert int(status) == 0, f"{case} ended with {int(status)}"
        return json.loads(result)

    def close(self) -> None:
        """End all."""
        if self._sandbox is not None:
            process, sandbox, self._sandbox = self._sandbox.process, self._sandbox, None
            with suppress(BrokenPipeError):
                process.stdin.close()  # after its case, the process ends by itself
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            sandbox.close()
            process.stdout.close()


def _serve() -> None:
    """Run the cases that standard input names; answer each by two lines: its result, and its exit status."""
    from tests.emulation import cases

    import_mininet()
    cases.capabilities()  # once for all
    for line in sys.stdin:
        case, arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _run_here(getattr(cases, case), arguments)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but this process and the sandbox' first
        os.write(1, b"\n" * (status != 0) + f"{status}\n".encode())


def _run_here(case: Any, arguments: dict[str, Any]) -> None:
    status = 1
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_NEW_MOUNTS | _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no namespaces of the case's own")
        mount_own()
        os.write(1, json.dumps(case(**arguments)).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def skip_reason() -> str | None:
    """Why emulation cannot be tested on this machine; None if it can."""
    found: Capabilities = probe()
    missing = [gap for gap in found.gaps() if gap.needed]
    return f"no emulation on this machine: {missing[0].name}: {missing[0].why}" if missing else None


if __name__ == "__main__":
    if len(sys.argv) == 1:
        _serve()
        sys.exit()
    from tests.emulation import cases

    print(json.dumps(getattr(cases, sys.argv[1])(**json.loads(sys.argv[2]))))  # noqa: T201 - read by finish()
