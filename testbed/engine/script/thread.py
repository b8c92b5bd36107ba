"""A user's script in a thread of its own, which runs only while its node lets it.

The node and the script take turns: ``resume`` runs the script until its next call of the API and returns that request;
the node carries it out and resumes with the answer. Exactly one of the two runs at any time, in both worlds, so the
script needs to know of no world, and in virtual time the order of everything is the simulator's.

Scripts share a process in the virtual world, so each has random generators of its own (torch, numpy, ``random``), which
are put in place while it runs.
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from testbed.errors import RunFailed
from testbed.kvstore import enter
from testbed.kvstore.session import ScriptJob
from testbed.plan.model import Plan
from testbed.training.seeds import seed_for

_END_S = 5.0  # that an abandoned script has to unwind; it stands in a call of the API, so this is ample
_TURN = threading.Lock()  # one script of a process at a time, as they share the generators


def start_script(plan: Plan, job: ScriptJob) -> ScriptThread:
    """Return a thread that waits for its first ``resume``. The script can import modules that lie beside it."""
    path = Path(plan.training.model.options["file"])
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return ScriptThread(path, job, seed_for(plan.seed, "script", job.rank))


class _Abandoned(BaseException):
    """The run has ended before the script."""


class ScriptThread:
    """Runs a file as ``__main__``, in turns with the caller of ``resume``."""

    def __init__(self, path: Path, job: ScriptJob, seed: int) -> None:
        self.job, self._path = job, path
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._generators = _seeded(seed)
        self._thread = threading.Thread(target=self._run, name=f"script {path.name}", daemon=True)
        self._thread.start()
        self.ended = False

    def resume(self, answer: Any) -> Any:
        """Continue with ``answer``. Return the next request, None at the end. Raise ``RunFailed`` on an error."""
        with _TURN:
            before = _generators()
            _put(self._generators)
            self._answers.put(answer)
            request = self._requests.get()
            self._generators = _generators()
            _put(before)
        self.ended = request is None or isinstance(request, BaseException)
        if isinstance(request, BaseException):
            raise RunFailed(self._explained(request)) from request
        return request

    def ask(self, request: str, *arguments: Any) -> Any:
        """Hand a request to the node and wait for the answer; to be called in the script's thread."""
        self._requests.put((request, arguments))
        return self._take()

    def abandon(self) -> None:
        """End the thread at the call of the API that it waits in."""
        if not self.ended:
            self._answers.put(_Abandoned())
            self._thread.join(_END_S)

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
            code = compile(self._path.read_text(encoding="utf-8"), str(self._path), "exec")
            exec(code, {"__name__": "__main__", "__file__": str(self._path), "__builtins__": __builtins__})
        except _Abandoned:
            pass  # a ``resume`` that has waited for its turn meanwhile must end as well, for it holds that turn
        except SystemExit as exit_:
            end = exit_ if exit_.code not in (None, 0) else None
        except BaseException as error:
            end = error
        self._requests.put(end)

    def _explained(self, error: BaseException) -> str:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self._path)]
        line = f" line {frames[-1].lineno}" if frames else ""
        return f"{self._path.name}{line}: {type(error).__name__}: {error}"


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
