"""Imports that begin in a thread of their own, before the process knows its plan, and end before it forks.

Meanwhile the main thread may make a network, which is many short waits for other processes. After each, it would be
without the interpreter for as long as a thread may hold it, so that is a tenth of what it usually is.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterable

from testbed.processes.threads import await_end

_HOLD_S = 5e-4
_threads: list[threading.Thread] = []
_usual_hold_s = sys.getswitchinterval()


def begin(modules: Iterable[str]) -> None:
    """Begin to import modules. What fails is written to standard error, and fails again where it is needed."""
    sys.setswitchinterval(_HOLD_S)
    _threads.append(threading.Thread(target=_import, args=[tuple(modules)]))
    _threads[-1].start()


def finish() -> None:
    """Return when all has been imported, and the thread has ended."""
    while _threads:
        thread = _threads.pop()
        thread.join()
        assert thread.native_id is not None
        await_end(thread.native_id)
    sys.setswitchinterval(_usual_hold_s)


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        importlib.import_module(module)
