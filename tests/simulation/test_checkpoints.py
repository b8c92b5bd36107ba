"""A checkpoint stops a run for as long as its barriers take. Its connections go on with their windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.messages import Message, MessageKind
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from testbed.simulation.outbox import SimulatedOutbox
from tests.engine.checkpoint.killed import Event, run_until
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each

FAR = (
    "links[*].rate=20 Mbit/s",
    "links[*].delay=40 ms",
    "training.model={kind: mlp, hidden: 500}",
    "training.rounds=8",
)


def simulated(directory: Path, *texts: str) -> list[Event]:
    return run_until(build_plan(load(THREE_SITES, (*FAR, *texts)), "simulate"), directory)


def durations_s(events: list[Event]) -> list[float]:
    return [
        event["t"] - event["t0"] for event in events if event["kind"] == "round" and event["node"] == "west/worker0"
    ]


@for_each(("network", "control"), [("{network: flows}", "cubic"), ("{network: packets}", "bbr")])
def test_rounds_after_a_checkpoint_are_as_long_as_without_one(network: str, control: str, tmp_path: Path) -> None:
    texts = (f"simulation={network}", f"transport.congestion_control={control}")
    calm, saved = (simulated(tmp_path / str(every), *texts, f"checkpoint.every={every}") for every in (0, 4))
    times = [event["t"] for event in saved if event["kind"] == "checkpoint"]
    assert len(times) == 1
    assert durations_s(saved)[:4] == pytest.approx(durations_s(calm)[:4])
    assert durations_s(saved)[4:] == pytest.approx(durations_s(calm)[4:], rel=0.02)
    pause_s = next(event["t0"] for event in saved if event["kind"] == "round" and event["round"] == 4) - times[0]
    assert pause_s < 0.1, "the release, and no new connection"


def test_a_server_that_hears_late_that_all_are_ready_has_its_state_before_its_workers_declare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers hear it earlier, by other connections; their mirrors are those of the checkpoint all the same."""
    texts = ("checkpoint.every=2", "training.rounds=6", "codec={kind: topk, ratio: 0.1, pull: difference, bound: 100}")
    plan = build_plan(load(THREE_SITES, texts), "simulate")
    whole = run_until(plan, tmp_path / "whole")
    second_s = [event["t"] for event in whole if event["kind"] == "checkpoint"][1]
    run_until(plan, tmp_path / "killed", second_s + 0.01)
    send = SimulatedOutbox.send

    async def late(self: SimulatedOutbox, to: str, message: Message) -> None:
        if message.kind is not MessageKind.READY or to != "east/server0":
            return await send(self, to, message)

        def send_now(_: object) -> None:
            with pytest.raises(StopIteration):
                send(self, to, message).send(None)

        self._clock.at(self._clock.now + 0.2, send_now)
        return None

    monkeypatch.setattr(SimulatedOutbox, "send", late)
    again = run_until(plan, tmp_path / "killed")
    final = [[event["parameters_sha256"] for event in run if "parameters_sha256" in event] for run in (whole, again)]
    assert sorted(final[0]) == sorted(final[1]) != []
