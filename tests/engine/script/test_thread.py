"""A script's thread, and the calls that it takes turns with."""

from __future__ import annotations

import threading
from pathlib import Path

from testbed.engine.script.thread import ScriptThread
from testbed.kvstore.session import ScriptJob


def test_a_call_that_comes_after_the_end_returns_and_frees_its_turn(tmp_path: Path) -> None:
    """A run may end while the next call still waits for another script's turn."""
    (tmp_path / "mine.py").write_text("")
    first, second = (ScriptThread(tmp_path / "mine.py", "a/worker0", ScriptJob(), seed, 60.0) for seed in (1, 2))
    first.abandon()
    late = threading.Thread(target=first.resume, args=(None,), daemon=True)
    late.start()
    late.join(5)
    assert not late.is_alive()
    assert second.resume(None) is None
