"""Predicted transfers end as their flows would: to the bit while no other flow interferes, else but for rounding.

Compared with the same transfers without prediction, and (as ``test_fold``) with workers that are not folded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from testbed.compute_model import ComputeModel
from testbed.messages import Message, MessageKind
from testbed.plan.pace import Pacer
from testbed.simulation import link_monitor
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows.connection import ConnectionGroup, FlowConnection
from testbed.simulation.flows.network import FlowNetwork, ReservableLink
from testbed.simulation.inbox import SimulatedInbox
from testbed.simulation.node import SimulatedNode
from testbed.simulation.paths import SitePath
from testbed.simulation.predicted_transfer import GroupConnections, PredictedTransfer, ServerPath
from testbed.simulation.recorder import VirtualRecorder
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.worker_group import FlowGroup, WorkerGroup
from tests.contract.tiny import NEIGHBOUR, tiny_plan
from tests.for_each import for_each
from tests.simulation.test_fold import EXACT, Ran, plan_of

TCP = TcpModel(setup_round_trips=0)
GROUP, OTHER = 0, 1
BEGIN_S = 1000.0  # by then connections are set up, by a first message


@dataclass(frozen=True)
class Case:
    """Messages of a worker group, and messages of another sender into the same port (when, bytes)."""

    ready_s: tuple[float, ...]
    copies: tuple[int, ...]
    more_bytes: tuple[int, ...]
    size_bytes: float
    port_bytes_per_s: float
    own_bytes_per_s: float
    delay_s: float
    others: tuple[tuple[float, float], ...] = ()
    again_s: float = 100.0  # when the group sends once more


def drawn(seed: int, others: int) -> Case:
    draw = Random(seed)
    members = draw.randint(1, 12)
    size_bytes, port = draw.uniform(1e4, 1e7), draw.uniform(1e8, 1e9)
    spread_s = draw.choice((0.2, 1.0, 3.0)) * members * size_bytes / port
    return Case(
        tuple(draw.choice((0.0, draw.uniform(0, spread_s))) for _ in range(members)),
        tuple(draw.randint(1, 3) for _ in range(members)),
        tuple(draw.randint(-1, 2) for _ in range(members)),
        size_bytes,
        port,
        port * draw.choice((0.3, 1.0, 5.0)),
        draw.uniform(0, 5e-4),
        tuple((draw.uniform(0, 1.5 * spread_s), draw.uniform(1e2, 1e6)) for _ in range(others)),
        draw.choice((0.5 * spread_s, 100.0)),
    )


class Members(WorkerGroup):
    """A group of which the test decides when each worker is ready: at once, or so long after BEGIN_S."""

    def __init__(self, ready_s: tuple[float, ...]) -> None:
        self._late_s, self.in_step = ready_s, False
        self._ready_s = self._coded_s = [0.0] * len(ready_s)

    def begin(self) -> None:
        self._ready_s = [BEGIN_S + late_s for late_s in self._late_s]


class Lan:
    """A server, and a worker group with a private path to it. ``arrivals``: when which message was handed over."""

    def __init__(self, case: Case, predict: bool, compiled: bool) -> None:
        self.clock = clock = Clock()
        self.network = FlowNetwork(clock, [case.port_bytes_per_s, 1e9], compiled)
        self.port: ReservableLink | None = self.network.reservable(0)
        node = tiny_plan([NEIGHBOUR]).nodes[0]
        recorder = VirtualRecorder(node.name, NullLog(), lambda event: None, lambda kind, fields: None, frozenset())
        pacer = Pacer(node.device, 1, node.name)
        self.server = SimulatedInbox(SimulatedNode(node.name, pacer), clock, recorder, ComputeModel().message_cost_s)
        self.arrivals: list[tuple[float, int]] = []
        self.server.serve(self._take)
        lan = SitePath("lan", (), case.delay_s, case.delay_s)
        self.groups = self._connect(case, lan, predict)
        far = SitePath("lan", (), 3e-4, 3e-4)
        self.other = FlowConnection(clock, self.network, far, (1, 0), TCP, self.server.deliver)
        for at_s, size_bytes in case.others:
            clock.at(BEGIN_S + at_s, partial(self._send_other, size_bytes))
        clock.at(BEGIN_S, lambda _: self.members.begin())
        for at_s in (0.0, BEGIN_S, BEGIN_S + case.again_s):
            clock.at(at_s, partial(self._send_group, case.size_bytes))
        clock.run()

    def _connect(self, case: Case, path: SitePath, predict: bool) -> GroupConnections:
        flow_groups = [
            FlowGroup(i, copies, more)
            for i, (copies, more) in enumerate(zip(case.copies, case.more_bytes, strict=True))
        ]
        self.connections = [
            FlowConnection(
                self.clock,
                self.network,
                path,
                (0,),
                TCP,
                partial(self.server.deliver, copies=each.copies),
                ConnectionGroup(each.copies, case.own_bytes_per_s),
            )
            for each in flow_groups
        ]
        server_path = ServerPath(self.network, self.server, self.port if predict else None, path.delay_s)
        self.members = Members(case.ready_s)
        return GroupConnections(self.clock, self.members, flow_groups, self.connections, server_path)

    def _send_group(self, size_bytes: float, _: object) -> None:
        envelope = self._envelope(GROUP)
        envelope.parts = self.groups.count
        self.groups.send(size_bytes, 0.0, envelope)

    def _send_other(self, size_bytes: float, _: object) -> None:
        self.other.send(size_bytes, 0.0, self._envelope(OTHER))

    def _envelope(self, key: int) -> Envelope:
        return Envelope(Message(MessageKind.PUSH, key, sender="west/worker0"), 0, 0, self.server, "lan")

    def _take(self, message: Message) -> bool:
        self.arrivals.append((self.clock.now, message.key))
        return True

    @property
    def carried(self) -> list[float]:
        return [connection.carried_bytes for connection in self.connections]


class NullLog:
    """A log that drops all events."""

    def write(self, kind: str, t: float, **fields: object) -> None: ...
    def append(self, event: dict[str, object]) -> None: ...


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many transfers were predicted, and how many predictions were withdrawn."""
    count = {"predicted": 0, "withdrawn": 0}
    predict, withdraw = PredictedTransfer._predict, PredictedTransfer.withdraw

    def count_predicted(transfer: PredictedTransfer, event: object) -> None:
        count["predicted"] += 1
        predict(transfer, event)

    def count_withdrawn(transfer: PredictedTransfer) -> None:
        count["withdrawn"] += 1
        withdraw(transfer)

    monkeypatch.setattr(PredictedTransfer, "_predict", count_predicted)
    monkeypatch.setattr(PredictedTransfer, "withdraw", count_withdrawn)
    return count


@for_each("compiled", [False, True])
def test_alone_all_messages_arrive_at_the_very_same_time(compiled: bool, counts: dict[str, int]) -> None:
    counts.update(predicted=0, withdrawn=0)
    for seed in range(8):
        case = replace(drawn(seed, others=0), again_s=100.0)
        seen, expected = Lan(case, True, compiled), Lan(case, False, compiled)
        assert seen.arrivals == expected.arrivals, seed
        assert len(seen.arrivals) == 3
        assert seen.carried == pytest.approx(expected.carried, rel=EXACT)
    assert counts == {"predicted": 16, "withdrawn": 0}


@for_each("compiled", [False, True])
def test_when_another_flow_interferes_it_continues_as_flows(compiled: bool, counts: dict[str, int]) -> None:
    counts.update(predicted=0, withdrawn=0)
    for seed in range(20):
        case = drawn(seed, others=1 + seed % 3)
        seen, expected = Lan(case, True, compiled), Lan(case, False, compiled)
        assert [key for _, key in seen.arrivals] == [key for _, key in expected.arrivals], seed
        times = [at_s for at_s, _ in expected.arrivals]
        assert [at_s for at_s, _ in seen.arrivals] == pytest.approx(times, rel=EXACT), seed
        assert seen.carried == pytest.approx(expected.carried, rel=EXACT), seed
        assert seen.port is not None
        assert seen.port.free
    assert counts["predicted"] > counts["withdrawn"] > 12


def test_a_message_that_was_in_flight_before_is_read_in_its_turn(counts: dict[str, int]) -> None:
    """It starts no flow while the group sends, but arrives after ten of its messages, and is read after these."""
    case = Case((0.0, 1.0), (10, 1), (0, 0), 1e3, 1e9, 1e9, 1e-5, others=((-1e-5, 100.0),))
    seen, expected = Lan(case, True, False), Lan(case, False, False)
    assert seen.arrivals == expected.arrivals
    read_s = [at_s - BEGIN_S for at_s, key in seen.arrivals if key == OTHER]
    assert read_s == pytest.approx([11 * ComputeModel().message_cost_s + 2e-5], abs=1e-7)
    assert counts == {"predicted": 2, "withdrawn": 0}


PATIENT = ("timeouts.step_deadline=24 h", "timeouts.run_deadline=240 h")
LANS = {
    "usual": (),
    "every byte takes a while": ("topology.lan.rate=1 Mbit/s", "topology.lan.delay=0.4 ms", *PATIENT),
    "no windows but those of the WAN": ("topology.lan.delay=2 ms",),
    "other steps": ("device.variation=0.9", "seed=9"),
    "sums of twelve": ("topology.data_centers[1].workers=23",),
}


@for_each("name", LANS)
def test_a_run_is_the_same_as_that_of_the_members(
    name: str, tmp_path: Path, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts.update(predicted=0, withdrawn=0)
    monkeypatch.setattr(link_monitor, "_SAMPLE_INTERVAL_S", 60.0)  # hours of virtual time
    settings = (
        "device.variation=0.4",
        "training.model.buckets=1",
        "order={kind: fifo, slice: whole}",
        "training.rounds=2",
    )
    plan = plan_of(*settings, *LANS[name])
    whole = Ran(replace(plan, simulation=replace(plan.simulation, fold=False)), tmp_path / "whole")
    folded = Ran(plan, tmp_path / "folded")
    for worker, ends in folded.ends.items():
        assert ends == pytest.approx(whole.ends[worker], rel=EXACT, abs=2e-6), worker
    assert folded.bytes == whole.bytes
    windows = name == "no windows but those of the WAN"
    assert (
        (counts["predicted"] == 0) if windows else (counts["predicted"] - counts["withdrawn"] >= 4)
    )  # not where a worker is alone
