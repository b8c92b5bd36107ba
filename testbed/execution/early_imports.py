"""Imports modules in a separate thread, from before the process knows its plan until before it forks."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable

from testbed.processes.threads import await_end

_threads: list[threading.Thread] = []


def begin(modules: Iterable[str]) -> None:
    """Begin to import modules. A failed import is reported on standard error, and fails again where it is needed."""
    _threads.append(threading.Thread(target=_import, args=[tuple(modules)]))
    _threads[-1].start()


def finish() -> None:
    """Wait until all modules have been imported and the thread has ended."""
    while _threads:
        thread = _threads.pop()
        thread.join()
        assert thread.native_id is not None
        await_end(thread.native_id)


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        importlib.import_module(module)
