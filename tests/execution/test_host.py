"""What the launcher asks of the host process while nodes run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.execution import early_imports, host
from testbed.results.progress import Progress
from tests.for_each import for_each


@for_each("ignored", [False, True])
def test_a_request_to_stop_goes_where_ctrl_c_goes(monkeypatch: pytest.MonkeyPatch, ignored: bool) -> None:
    """The fleet's handler ends nodes in good order; an exception in the fleet would kill them with what they recorded.

    Where SIGINT is ignored, as below a shell's ``&``, the request ends the run all the same.
    """
    taken: list[int] = []
    monkeypatch.setattr(os, "read", lambda descriptor, count: b"stop\n")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else lambda number, frame: taken.append(number))
    try:
        if ignored:
            with pytest.raises(KeyboardInterrupt):
                host._on_launcher()
        else:
            try:
                host._on_launcher()
            except KeyboardInterrupt:
                pytest.fail("an exception in the fleet")
            assert taken == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


@for_each("name", ["run", "a run\nwith an umläut"])
def test_what_follows_the_directory_is_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run = tmp_path / name
    run.mkdir()
    given = io.BytesIO(json.dumps(str(run)).encode() + b"\nstop\n")
    monkeypatch.setattr(os, "read", lambda descriptor, count: given.read(count))
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert host._told_directory([]) == run
    assert given.read() == b"stop\n"


def test_early_imports_are_complete_and_their_thread_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are forked from this process."""
    (tmp_path / "imported_early.py").write_text("import time\ntime.sleep(0.05)\ndone = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = threading.active_count()
    early_imports.begin(["json", "imported_early"])
    assert threading.active_count() == before + 1
    early_imports.finish()
    assert sys.modules.pop("imported_early").done and threading.active_count() == before
    early_imports.finish()  # once more has no effect


@contextlib.contextmanager
def reporting(waits: bool) -> Iterator[tuple[Progress, int, int]]:
    """The host's report, the launcher's end of the pipe, and the host's."""
    (launcher, channel), output, closing = os.pipe(), os.dup(1), list[int]()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host, "close_in_children", closing.append)
            os.dup2(channel, 1)
            report = host._reporter(waits)
    finally:
        os.dup2(output, 1)
    os.set_blocking(launcher, False)
    yield report, launcher, closing[0]
    for descriptor in (launcher, channel, output, *closing):
        os.close(descriptor)


def read(launcher: int, into: bytearray) -> None:
    """Return what can be read without waiting."""
    with contextlib.suppress(BlockingIOError):
        while True:
            into += os.read(launcher, 1 << 16)


def numbers(text: bytearray, kind: str) -> list[int]:
    """The numbers of the whole lines of a kind."""
    lines = [json.loads(line) for line in text.split(b"\n")[:-1] if line]
    return [line["number"] for line in lines if line["kind"] == kind]


def test_nodes_of_real_time_wait_for_no_launcher_that_is_stopped() -> None:
    """Once it goes on, it gets all but states that newer ones have replaced."""
    text = bytearray()
    with reporting(waits=False) as (report, launcher, _):

        def report_much() -> None:
            for number in range(200):  # of 1 kB; a pipe takes 64
                report({"kind": "warning", "number": number, "message": "x" * 1000})
                report({"kind": "status", "number": number})

        thread = threading.Thread(target=report_much, daemon=True)
        thread.start()
        thread.join(240)
        assert not thread.is_alive()
        read(launcher, text)
        assert 10 < len(numbers(text, "warning")) < 100
        for number in range(200, 210):
            report({"kind": "warning", "number": number})
            report({"kind": "status", "number": number})
            read(launcher, text)
    assert numbers(text, "warning") == list(range(210))
    states = numbers(text, "status")
    assert states == sorted(states) and states[:10] == list(range(10)) and states[-1] == 209 and len(states) < 100


@for_each(("waits", "kind"), [(True, "warning"), (False, "outcome")])
def test_a_simulation_waits_for_the_launcher_and_so_does_every_outcome(waits: bool, kind: str) -> None:
    """A simulation would else go far ahead of the callbacks that end it."""
    text = bytearray()
    with reporting(waits) as (report, launcher, channel):
        blocks = os.get_blocking(channel)
        os.set_blocking(channel, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(channel, b"\n" * 4096)
        os.set_blocking(channel, blocks)
        thread = threading.Thread(target=report, args=[{"kind": kind, "number": 1}])
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        while thread.is_alive():
            read(launcher, text)
            thread.join(0.01)
        read(launcher, text)
    assert numbers(text, kind) == [1]
