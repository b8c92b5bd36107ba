"""A script's thread, and the calls that it takes turns with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.keys import KeyPush
from testbed.engine.script import thread as script_thread
from testbed.engine.script.exchange import ScriptExchange
from testbed.engine.script.thread import ScriptThread
from testbed.kvstore.session import ScriptJob
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from testbed.world import Work
from tests.engine.runs import THREE_SITES


def test_a_call_that_comes_after_the_end_returns_and_frees_its_turn(tmp_path: Path) -> None:
    """A run may end while the next call still waits for another script's turn."""
    (tmp_path / "mine.py").write_text("")
    first, second = (ScriptThread(tmp_path / "mine.py", "a/worker0", ScriptJob(), seed, 60.0) for seed in (1, 2))
    first.abandon()
    late = threading.Thread(target=first.resume, args=(None,), daemon=True)
    late.start()
    late.join(240)
    assert not late.is_alive()
    assert second.resume(None) is None


POSTING = """
from testbed.kvstore.session import here
session = here()
for number in range(100):
    session.post("push", number)
session.ask("barrier")
"""


def test_posted_requests_wait_for_the_node_together_and_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POSTING)
    thread = ScriptThread(tmp_path / "mine.py", "a/worker0", ScriptJob(), 1, 60.0)
    waiting: list[int] = []
    thread.on_posted = lambda: waiting.append(len(thread.posted))
    assert thread.resume(None) == ("push", (64,)), "a script that posts faster than its node carries out waits"
    assert [number for _, _, (number,) in thread.posted] == list(range(64))
    assert waiting == [1], "the node is called once"
    thread.posted.clear()
    assert thread.resume("done") == ("barrier", ())
    assert [number for _, _, (number,) in thread.posted] == list(range(65, 100))
    thread.abandon()


LARGE = """
import torch
from testbed.kvstore.session import here
session = here()
for number in range(4):
    session.post("push", number, torch.zeros(10))
session.ask("barrier")
"""


def test_posted_tensors_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_thread, "_POSTED_BYTES", 70)
    (tmp_path / "mine.py").write_text(LARGE)
    thread = ScriptThread(tmp_path / "mine.py", "a/worker0", ScriptJob(), 1, 60.0)
    thread.on_posted = lambda: None
    what, (number, _) = thread.resume(None)
    assert (what, number) == ("push", 2), "80 bytes wait"
    thread.posted.clear()
    assert thread.resume("done") == ("barrier", ())
    thread.abandon()


def test_without_a_node_that_runs_beside_it_a_script_waits_for_every_request(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POSTING)
    thread = ScriptThread(tmp_path / "mine.py", "a/worker0", ScriptJob(), 1, 60.0)
    assert thread.resume(None) == ("push", (0,))
    assert thread.resume(0) == ("push", (1,))
    thread.abandon()


PUSHING = """
from testbed.kvstore.session import here
session = here()
for number in range(3):
    session.post("push", number, None, None, ())
session.ask("barrier")
"""


class _Node:
    """World, session and store of a script, as far as this test needs them; ``calls``: what reached the latter."""

    node = "a/worker0"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.call_from_thread = asyncio.get_running_loop().call_soon_threadsafe
        self.world = self.membership = self.peers = self.states = self

    def now(self) -> float:
        return 0.0

    async def compute(self, work: Work, function: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(function)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(coroutine, name=name)

    async def wait(self, future: asyncio.Task[None], waiting_for: str) -> None:
        await future

    async def push(self, push: KeyPush) -> None:
        await asyncio.sleep(0.01)  # as if the queue of the connection were full
        self.calls.append(f"push {push.key}")

    async def barrier(self, name: str, size: int, waiting_for: str) -> None:
        self.calls.append("barrier")

    def done(self, round_: int) -> None:
        """Do nothing: no worker joins in this test."""


def test_a_request_is_carried_out_after_all_that_the_script_has_posted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PUSHING)

    async def run() -> list[str]:
        node: Any = _Node()
        plan = build_plan(load(THREE_SITES), "simulate")
        thread = ScriptThread(tmp_path / "mine.py", "a/worker0", ScriptJob(), 1, 60.0)
        await ScriptExchange(node, plan, node, ScriptJob(), thread).run(0, lambda done: None)
        return list(node.calls)

    assert asyncio.run(run()) == ["push 0", "push 1", "push 2", "barrier"]
