"""What the launcher asks of the host process while nodes run."""

from __future__ import annotations

import os
import signal

import pytest

from testbed.execution import host


@pytest.mark.parametrize("ignored", [False, True])
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
