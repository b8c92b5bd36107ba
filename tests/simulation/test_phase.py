"""What is foreseen of a private LAN is what the flows do: to the bit while nobody comes between, else but for rounding.

Held against the same without foreseeing, and (``test_fold``) against members that nobody folded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from testbed.messages import Message, MessageKind
from testbed.simulation.clock import Clock
from testbed.simulation.compute import ComputeModel
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows import FlowNetwork, ReservableLink
from testbed.simulation.paths import SitePath
from testbed.simulation.predicted_transfer import PredictedTransfer, ServerPath
from testbed.simulation.recorder import VirtualRecorder
from testbed.simulation.tcp import ConnectionGroup, TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.waits import Waits
from testbed.simulation.worker_group import FlowGroup, FlowGroups, WorkerGroup
from testbed.simulation.world import SimulatedWorld
from tests.contract.tiny import NEIGHBOUR, tiny_plan
from tests.simulation.test_fold import EXACT, Ran, plan_of

TCP = TcpModel(setup_round_trips=0)
CREW, OTHER = 0, 1
BEGIN_S = 1000.0  # by then connections are set up, by a first message


@dataclass(frozen=True)
class Case:
    """Messages of a crew, and letters of somebody else into the same port (when, bytes)."""

    ready_s: tuple[float, ...]
    copies: tuple[int, ...]
    more_bytes: tuple[int, ...]
    size_bytes: float
    port_bytes_per_s: float
    own_bytes_per_s: float
    delay_s: float
    others: tuple[tuple[float, float], ...] = ()
    again_s: float = 100.0  # when the crew sends once more


def drawn(seed: int, others: int) -> Case:
    draw = Random(seed)
    members = draw.randint(1, 12)
    size_bytes, port = draw.uniform(1e4, 1e7), draw.uniform(1e8, 1e9)
    spread_s = draw.choice((0.2, 1.0, 3.0)) * members * size_bytes / port
    return Case(
        tuple(draw.choice((0.0, draw.uniform(0, spread_s))) for _ in range(members)),
        tuple(draw.randint(1, 3) for _ in range(members)),
        tuple(draw.randint(-1, 2) for _ in range(members)),
        size_bytes, port, port * draw.choice((0.3, 1.0, 5.0)), draw.uniform(0, 5e-4),
        tuple((draw.uniform(0, 1.5 * spread_s), draw.uniform(1e2, 1e6)) for _ in range(others)),
        draw.choice((0.5 * spread_s, 100.0)),
    )  # fmt: skip


class Members(WorkerGroup):
    """A crew of which the test says when each is ready: at once, or so long after BEGIN_S."""

    def __init__(self, ready_s: tuple[float, ...]) -> None:
        self._late_s, self.alike = ready_s, False
        self._ready_s = [0.0] * len(ready_s)

    def begin(self) -> None:
        self._ready_s = [BEGIN_S + late_s for late_s in self._late_s]


class Lan:
    """A server, and a crew with a private way to it; ``arrivals`` says when which letter was handed over."""

    def __init__(self, case: Case, foresee: bool, compiled: bool) -> None:
        self.clock = clock = Clock()
        self.network = FlowNetwork(clock, [case.port_bytes_per_s, 1e9], 2, compiled)
        self.port: ReservableLink | None = self.network.port(0)
        node = tiny_plan([NEIGHBOUR]).nodes[0]
        recorder = VirtualRecorder(node.name, Nothing(), lambda event: None, lambda kind, fields: None, frozenset())
        self.server = SimulatedWorld(node, clock, Waits(clock), recorder, ComputeModel(), 1e9, lambda *_: None)  # type: ignore[arg-type]
        self.arrivals: list[tuple[float, int]] = []
        self.server.serve(self._take)
        lan = SitePath("lan", (), case.delay_s, case.delay_s)
        self.lanes = self._lanes(case, lan, foresee)
        far = SitePath("lan", (), 3e-4, 3e-4)
        self.other = TcpConnection(clock, self.network, far, (1, 0), TCP, self.server.deliver)
        for at_s, size_bytes in case.others:
            clock.at(BEGIN_S + at_s, partial(self._send_other, size_bytes))
        clock.at(BEGIN_S, lambda _: self.members.begin())
        for at_s in (0.0, BEGIN_S, BEGIN_S + case.again_s):
            clock.at(at_s, partial(self._send_crew, case.size_bytes))
        clock.run()

    def _lanes(self, case: Case, path: SitePath, foresee: bool) -> FlowGroups:
        lanes = [
            FlowGroup(i, copies, more)
            for i, (copies, more) in enumerate(zip(case.copies, case.more_bytes, strict=True))
        ]
        self.connections = [
            TcpConnection(
                self.clock, self.network, path, (0,), TCP, partial(self.server.deliver, copies=lane.copies),
                ConnectionGroup(lane.copies, case.own_bytes_per_s),
            )
            for lane in lanes
        ]  # fmt: skip
        way = ServerPath(self.network, self.server, self.port if foresee else None, path.delay_s)
        self.members = Members(case.ready_s)
        return FlowGroups(self.clock, self.members, lanes, self.connections, way)

    def _send_crew(self, size_bytes: float, _: object) -> None:
        letter = self._letter(CREW)
        letter.lanes = self.lanes.count
        self.lanes.send(size_bytes, 0.0, letter)

    def _send_other(self, size_bytes: float, _: object) -> None:
        self.other.send(size_bytes, 0.0, self._letter(OTHER))

    def _letter(self, key: int) -> Envelope:
        return Envelope(Message(MessageKind.PUSH, key, sender="west/worker0"), 0, 0, self.server, "lan")

    def _take(self, message: Message) -> bool:
        self.arrivals.append((self.clock.now, message.key))
        return True

    @property
    def carried(self) -> list[float]:
        return [connection.carried_bytes for connection in self.connections]


class Nothing:
    """A log that nobody reads."""

    def write(self, kind: str, t: float, **fields: object) -> None: ...
    def append(self, event: dict[str, object]) -> None: ...


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many phases there were, and how many gave way."""
    count = {"phases": 0, "gave way": 0}
    begin, give_way = PredictedTransfer._foresee, PredictedTransfer.give_way

    def count_begin(phase: PredictedTransfer, event: object) -> None:
        count["phases"] += 1
        begin(phase, event)

    def count_end(phase: PredictedTransfer) -> None:
        count["gave way"] += 1
        give_way(phase)

    monkeypatch.setattr(PredictedTransfer, "_foresee", count_begin)
    monkeypatch.setattr(PredictedTransfer, "give_way", count_end)
    return count


@pytest.mark.parametrize("compiled", [False, True])
def test_alone_everything_happens_at_the_very_same_time(compiled: bool, told: dict[str, int]) -> None:
    for seed in range(60):
        case = replace(drawn(seed, others=0), again_s=100.0)
        seen, expected = Lan(case, True, compiled), Lan(case, False, compiled)
        assert seen.arrivals == expected.arrivals, seed
        assert len(seen.arrivals) == 3
        assert seen.carried == pytest.approx(expected.carried, rel=EXACT)
    assert told == {"phases": 120, "gave way": 0}


@pytest.mark.parametrize("compiled", [False, True])
def test_with_others_at_any_time_it_goes_on_as_flows(compiled: bool, told: dict[str, int]) -> None:
    for seed in range(150):
        case = drawn(seed, others=1 + seed % 3)
        seen, expected = Lan(case, True, compiled), Lan(case, False, compiled)
        assert [key for _, key in seen.arrivals] == [key for _, key in expected.arrivals], seed
        times = [at_s for at_s, _ in expected.arrivals]
        assert [at_s for at_s, _ in seen.arrivals] == pytest.approx(times, rel=EXACT), seed
        assert seen.carried == pytest.approx(expected.carried, rel=EXACT), seed
        assert seen.port is not None
        assert seen.port.free
    assert told["phases"] > told["gave way"] > 100


def test_what_was_on_its_way_before_is_read_in_its_turn(told: dict[str, int]) -> None:
    """It starts no flow while the crew sends, but arrives after ten of them, and is looked at after these."""
    case = Case((0.0, 1.0), (10, 1), (0, 0), 1e3, 1e9, 1e9, 1e-5, others=((-1e-5, 100.0),))
    seen, expected = Lan(case, True, False), Lan(case, False, False)
    assert seen.arrivals == expected.arrivals
    read_s = [at_s - BEGIN_S for at_s, key in seen.arrivals if key == OTHER]
    assert read_s == pytest.approx([11 * ComputeModel().message_cost_s + 2e-5], abs=1e-7)
    assert told == {"phases": 2, "gave way": 0}


PATIENT = ("timeouts.step_deadline=24 h", "timeouts.run_deadline=240 h")
LANS = {
    "usual": (),
    "every byte takes a while": ("topology.lan.rate=1 Mbit/s", "topology.lan.delay=0.4 ms", *PATIENT),
    "no windows but those of the WAN": ("topology.lan.delay=2 ms",),
    "other steps": ("device.variation=0.9", "seed=9"),
    "sums of twelve": ("topology.data_centers[1].workers=23",),
}


@pytest.mark.parametrize("name", LANS)
def test_a_run_is_the_same_as_that_of_the_members(name: str, tmp_path: Path, told: dict[str, int]) -> None:
    plan = plan_of("device.variation=0.4", "training.model.buckets=1", *LANS[name])
    whole = Ran(replace(plan, simulation=replace(plan.simulation, fold=False)), tmp_path / "whole")
    folded = Ran(plan, tmp_path / "folded")
    for worker, ends in folded.ends.items():
        assert ends == pytest.approx(whole.ends[worker], rel=EXACT, abs=2e-6), worker
    assert folded.bytes == whole.bytes
    windows = name == "no windows but those of the WAN"
    assert (told["phases"] == 0) if windows else (told["phases"] - told["gave way"] >= 8)  # not where a worker is alone
