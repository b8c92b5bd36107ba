"""A user's script in a thread of its own, which runs only while its node lets it.

The node and the script take turns. ``resume`` runs the script until its next call of the API, and returns that request.
The node carries it out and resumes the script with the answer. Exactly one of the two runs at any time, in both worlds.
So a script need not know in which world it runs, and in virtual time the simulator decides the order of all events.
There is one exception: a script may post a request without waiting for an answer. A node of the real world carries it
out while the script runs on. So pushes leave while the script makes the next ones, and small pushes leave together.

Scripts share a process in the virtual world. So each script has random generators (torch, numpy, ``random``), a module
``__main__``, imported modules from its own folder, and arguments (none) of its own. They are in place while it runs.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
import torch

from testbed.engine.script.modules import ScriptModules
from testbed.engine.script.watch import ScriptWatch
from testbed.errors import RunFailed
from testbed.kvstore import enter
from testbed.kvstore.session import Posted, ScriptJob
from testbed.plan.model import NodePlan, Plan
from testbed.results.failures import Cause, cause_of
from testbed.training.seeds import seed_for

_END_S = 5.0  # time for an abandoned script to unwind; it waits in a call of the API, so this is ample
_PATIENCE = 0.9  # of a step's deadline, to fail before its peers, whose errors would explain less
_MOST_POSTED = 64  # posted requests that may be pending; a script that posts more waits
_POSTED_BYTES = 64 << 20  # of all pending requests except the last
_TURN = threading.Lock()  # one script of a process runs at a time, as scripts share the generators


def start_script(plan: Plan, node: NodePlan, job: ScriptJob, watch: ScriptWatch | None = None) -> ScriptThread:
    """Return a thread that waits for its first ``resume``. The script can import modules that lie beside it."""
    path = Path(plan.training.model.options["file"])
    folder = str(path.parent)
    sys.path[:] = [folder, *(each for each in sys.path if each != folder)]
    if watch:
        watch.files.begin(node.name)
    seed = seed_for(plan.seed, "script", job.rank)
    deadline_s = _PATIENCE * plan.timeouts.step_deadline_s
    return ScriptThread(path, node.name, job, seed, deadline_s, watch)


class _Abandoned(BaseException):
    """The run has ended before the script."""


class ScriptThread:
    """Runs a file as ``__main__``, in turns with the caller of ``resume``."""

    store: Any = None

    def __init__(
        self, path: Path, node: str, job: ScriptJob, seed: int, deadline_s: float, watch: ScriptWatch | None = None
    ) -> None:
        """``deadline_s``: the longest time between two calls of the API, on the wall clock."""
        self.node = node
        self.job = job
        self._path = path
        self._deadline_s = deadline_s
        self._watch = watch
        self.posted: deque[tuple[Posted, str, tuple[Any, ...]]] = deque()  # requests to be carried out, in order
        self.on_posted: Callable[[], object] | None = None  # called when a request is posted; None: posting waits, too
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._generators = _seeded(seed)
        self._main = ModuleType("__main__")
        self._main.__file__ = str(path)
        self._arguments = [str(path)]  # as of ``python my_train.py``
        self._modules = ScriptModules(path.parent)
        self.thread = threading.Thread(target=self._run, name=f"script {path.name}", daemon=True)
        self.thread.start()
        self.ended = False

    def resume(self, answer: Any) -> Any:
        """Continue the script with ``answer``. Return its next request, or None at its end.

        Raise ``RunFailed`` (``NODE: FILE:LINE: TYPE: TEXT``) if the script fails, or makes no call before the deadline.
        """
        with self.in_place():
            if self._watch:
                self._watch.begin_turn(self, self._deadline_s)
            try:
                self._answers.put(answer)
                request = self._requests.get(timeout=self._deadline_s)
            except Empty:
                self.ended = True
                raise self._failed(self._hung()) from None
            finally:
                if self._watch:
                    self._watch.end_turn()
            self.ended = request is None or isinstance(request, BaseException)
        if isinstance(request, BaseException):
            raise self._failed(cause_of(request, self._path)) from request
        return request

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the script's generators, modules and arguments in place, for its turn or to call one of its functions."""
        with _TURN:
            before = _generators()
            main = sys.modules["__main__"]
            arguments = sys.argv
            _put(self._generators)
            sys.modules["__main__"] = self._main  # where pickle looks for the script's classes
            sys.argv = self._arguments
            self._modules.put()
            try:
                yield
            finally:
                self._modules.note()
                self._generators = _generators()
                _put(before)
                sys.modules["__main__"] = main
                self._arguments, sys.argv = sys.argv, arguments
                if self.ended:
                    self._modules.take()

    def ask(self, request: str, *arguments: Any) -> Any:
        """Hand a request to the node and wait for the answer. Call it in the script's thread."""
        if self._watch:
            self._watch.note(self, sys._getframe(1))
        self._requests.put((request, arguments))
        return self._take()

    def post(self, request: str, *arguments: Any) -> Posted:
        """Hand a request to the node without waiting, unless many are pending. Call it in the script's thread."""
        waiting = self.posted.copy()  # the node may take requests out meanwhile
        waiting_bytes = sum([each.size_bytes for each, _, _ in waiting])
        if self.on_posted is None or len(waiting) >= _MOST_POSTED or waiting_bytes > _POSTED_BYTES:
            return Posted(self.ask(request, *arguments))
        if self._watch:
            self._watch.note(self, sys._getframe(1))
        posted = Posted(size_bytes=sum([each.nbytes for each in arguments if isinstance(each, torch.Tensor)]))
        self.posted.append((posted, request, arguments))
        if len(self.posted) == 1:  # otherwise the node has been told already
            self.on_posted()
        return posted

    def fail(self, error: BaseException) -> None:
        """End the script with the error of a thread that it has started."""
        self._requests.put(error)

    def abandon(self) -> None:
        """End the thread at the call of the API that it waits in."""
        if not self.ended:
            self._answers.put(_Abandoned())
            self.thread.join(_END_S)

    def _take(self) -> Any:
        answer = self._answers.get()
        if isinstance(answer, _Abandoned):
            raise answer
        return answer

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            self._take()
            torch.set_num_threads(1)
            enter(self)
            code = compile(self._path.read_bytes(), str(self._path), "exec")
            exec(code, self._main.__dict__)
        except _Abandoned:
            pass  # but put None below: a ``resume`` that waits in this turn must end, too
        except SystemExit as exit_:
            end = exit_ if exit_.code not in (None, 0) else None
        except BaseException as error:
            end = error
        self._requests.put(end)

    def _hung(self) -> Cause:
        stands = self._watch.stacks(self) if self._watch else Cause(self._path.name, "")
        what = f"no call of the store for {self._deadline_s:g} s (timeouts.step_deadline permits more)"
        return Cause(stands.place, f"TimeoutError: {what}{stands.what}", stands.traceback)

    def _failed(self, cause: Cause) -> RunFailed:
        if self._watch:
            self._watch.files.keep(self.node, cause)
        return RunFailed(f"{self.node}: {cause}")


def _generators() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _put(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def _seeded(seed: int) -> tuple[Any, ...]:
    return (
        torch.Generator().manual_seed(seed).get_state(),
        np.random.RandomState(seed % 2**32).get_state(),
        random.Random(seed).getstate(),
    )
