"""The judgement of the benchmark ``links``; its networks are made by ``test_emulated``."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.benchmarks import links
from tests.for_each import for_each


@for_each(("lost", "ok"), [(10, True), (9, False)])
def test_a_datagram_that_is_not_accounted_for_fails(lost: int, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1000, 990 arrive: a loss of 1 % as planned, and one of the others may be nowhere."""
    counted = iter((0, lost))

    def counters() -> dict[str, Any]:
        return {"dc0>dc1": SimpleNamespace(lost_packets=next(counted), dropped_packets=0)}

    monkeypatch.setattr(links, "Emulation", lambda *_: nullcontext(SimpleNamespace(counters=counters)))
    monkeypatch.setattr(links, "count_datagrams", lambda *_: 990)
    nothing: Any = None
    row = links.loss_row(nothing, 0.01, 1000)
    assert (row["ok"], row["note"].startswith("NOT ACCOUNTED FOR")) == (ok, not ok)
