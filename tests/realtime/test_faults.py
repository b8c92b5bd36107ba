"""Faults that are carried out on real processes, where a run goes on from a checkpoint."""

from __future__ import annotations

import signal

from testbed.plan.fault_clock import Due, FaultClock
from testbed.realtime.faults import LEAVE_SIGNAL, FaultInjector
from tests.faults.runs import CONTINUE, faults, plan_of


def test_who_was_asked_to_leave_before_the_checkpoint_is_asked_once_more() -> None:
    texts = ("kind: leave, node: east/worker1, at: 500 ms", "kind: leave, node: west/worker0, at: 9 s")
    plan = plan_of(CONTINUE, faults(*texts), on="local")
    clock = FaultClock(plan)
    clock.goes_on(3, trained_s=0.6, absent=())
    sent: list[tuple[str, signal.Signals]] = []
    told: list[tuple[Due, float]] = []

    def send(node: str, number: signal.Signals) -> bool:
        sent.append((node, number))
        return True

    injector = FaultInjector(
        plan, clock, 0, send, start_again=lambda node: None, on_fault=lambda due, now_s: told.append((due, now_s))
    )
    injector.take({"kind": "train", "t": 10.0})
    assert sent == [("east/worker1", LEAVE_SIGNAL)]
    assert not told, "it is no new fault"
