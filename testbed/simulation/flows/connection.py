"""The Python side of a TCP connection over the flow network: see ``sending``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.plan.instant import ConnectionState
from testbed.simulation.clock import Clock
from testbed.simulation.flows.classes import delivered_by
from testbed.simulation.flows.dispatch import (
    BEGIN,
    DROP,
    OPEN,
    PATH_CHANGED,
    PUMP,
    SEND,
    STATE_CHANGED,
    STOP,
)
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.handshake import set_up
from testbed.simulation.machine.record import NONE
from testbed.simulation.paths import SitePath
from testbed.simulation.send_queue import OnStart, SimulatedConnection
from testbed.simulation.tcp_model import TcpModel

_SHORT_RTT_S = 1e-3  # up to this RTT (inside a LAN) no window is modelled, as it opens once, within a few milliseconds

# The state of an idle connection: name in the checkpoint, field of its record
_REMEMBERED = {
    "idle_since_s": "idle_since_s",
    "ready": "is_open",
    "window/best_rate": "best_rate",
    "window/follows_full": "follows_full",
    "window/threshold_bytes": "threshold_bytes",
    "window/network_limited": "network_limited",
    "window/open": "open",
    "window/round_end_s": "round_end_s",
    "window/size_bytes": "window_bytes",
}


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    """``copies`` connections that always do the same, simulated as one.

    private_capacity  capacity of the ports that each connection has to itself (bytes/s); its links do not include them
    """

    copies: int = 1
    private_capacity: float = math.inf


SINGLE = ConnectionGroup()


class FlowConnection(SimulatedConnection):
    """One direction between two nodes. ``deliver(item)`` is called when a message has arrived.

    It may stand for a ``ConnectionGroup``. Then sizes are those of one connection, and ``deliver`` is called once for
    all of them.

    unlimited  it has no congestion window
    """

    def __init__(
        self,
        clock: Clock,
        network: FlowNetwork,
        path: SitePath,
        links: tuple[int, ...],
        model: TcpModel,
        deliver: Callable[[Any], None],
        group: ConnectionGroup = SINGLE,
    ) -> None:
        self._clock = clock
        self._network = network
        self._path = path
        self._model = model
        self._deliver = deliver
        self.flow = network.flow_class(links, model.weight(path.rtt_s))
        self.unlimited = not model.slow_start or (not path.links and 2 * path.delay_s <= _SHORT_RTT_S)
        self._on_room: Callable[[], None] | None = None
        self._used = False
        self._earlier_bytes = 0.0  # carried by the connections that it has replaced
        self._left: tuple[Any, Any, Any] | None = None  # copies of its records, once the network goes on without it
        self.number = number = network.add_connection(self)
        it = network.record("connection", number)
        it.index = number
        it.flow_class = self.flow.number
        it.path = network.path(path)
        it.model = network.model(model)
        it.copies = group.copies
        it.private_capacity = group.private_capacity
        it.unlimited = self.unlimited
        it.rtt_s = path.rtt_s
        it.stopped_until_s = -math.inf
        it.down_since_s = math.inf
        it.timer_s = math.inf
        for name in ("sending", "rest", "heap", "standing_at"):
            setattr(it, name, NONE)
        network.call(BEGIN, number)

    @property
    def record(self) -> Any:
        """See ``records.Connection``."""
        return self._network.machine.connections[self.number] if self._left is None else self._left[0]

    # ---- properties -----------------------------------------------------------------------------------------------

    @property
    def on_room(self) -> Callable[[], None] | None:
        """Called when a message has left the queue."""
        return self._on_room

    @on_room.setter
    def on_room(self, call: Callable[[], None] | None) -> None:
        self._on_room = call
        self.record.tells_room = call is not None

    @property
    def busy(self) -> bool:
        it = self.record
        return bool(it.sending != NONE or it.waiting or it.rest != NONE)

    @property
    def waiting_bytes(self) -> float:
        return float(self.record.waiting_bytes)

    @property
    def carried_bytes(self) -> float:
        """Bytes that all connections of the group, and those that they have replaced, have carried until now."""
        flow = self.flow.record if self._left is None else self._left[1]
        return self._earlier_bytes + float(delivered_by(self._clock.now, flow))

    @property
    def worst_loss(self) -> float:
        """The largest share of packets that its path has lost at random."""
        return 1.0 - self._path.least_passing if self._used else 0.0

    @property
    def pipe(self) -> Any:
        """Its path, as last known: see ``records.Pipe``."""
        return self._network.record("pipe", self.number) if self._left is None else self._left[2]

    @property
    def rtt_s(self) -> float:
        return float(self.record.rtt_s)

    def leave(self) -> None:
        """Keep copies of the records, as the network is about to begin anew without this connection."""
        if self._left is None:
            self._left = _copy(self.record), _copy(self.flow.record), _copy(self.pipe)

    def take_over(self, before: FlowConnection) -> None:
        """Replace the connection ``before``: add its bytes and bursts to this one's."""
        self._earlier_bytes += before.carried_bytes
        it = self.record
        other = before.record
        it.largest_burst_bytes = max(it.largest_burst_bytes, other.largest_burst_bytes)
        it.bursts += other.bursts
        it.pauses += other.pauses

    def forget_bursts(self) -> None:
        """Count bursts from now on, as training begins: the first values may be larger than any later message."""
        it = self.record
        it.largest_burst_bytes = 0.0
        it.bursts = 0
        it.pauses = 0

    # ---- the state for checkpoints --------------------------------------------------------------------------------

    def state(self) -> ConnectionState:
        """Return the state of this connection, which must have nothing to send or under way."""
        it = self.record
        values = {name: getattr(it, field) for name, field in _REMEMBERED.items()}
        values["used"] = self._used
        # bytes delivered at the beginning of the window's round, minus those delivered by now
        values["round_base"] = it.round_base - delivered_by(self._clock.now, self.flow.record) / it.copies
        values["cap"] = self.flow.record.cap
        return {name: value if math.isfinite(value) else str(value) for name, value in values.items()}

    def load_state(self, state: ConnectionState) -> None:
        """Continue from this state."""
        values: dict[str, Any] = {n: float(value) if isinstance(value, str) else value for n, value in state.items()}
        it = self.record
        for name, field in _REMEMBERED.items():
            setattr(it, field, values[name])
        it.round_base = values["round_base"]
        self._used = values["used"]
        self._network.set_cap(self.flow, values["cap"])

    # ---- messages -------------------------------------------------------------------------------------------------

    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None:
        if self._is_killed():
            return
        if not self._used:
            self._set_up()
        if self.flow.reservable:
            self._free_links()
        network = self._network
        network.call(SEND, self.number, network.keep(self._deliver, item, on_start), size_bytes, priority)
        if self._stopped_until_s > self._clock.now:
            self._clock.at(self._stopped_until_s, self._continue)

    def drop_messages(self) -> None:
        self._network.call(DROP, self.number)

    def _free_links(self) -> None:
        """End reservations of the links if a message is about to begin at once."""
        if self.idle and self._clock.now >= self._stopped_until_s:
            self.flow.free_links()

    def _set_up(self) -> None:
        self._used = True
        if self._model.setup_round_trips * self.record.rtt_s <= 0:
            self.record.is_open = True
        else:
            set_up(self._clock, self._path, self._model.setup_round_trips, self._is_killed, self._on_set_up)

    def _on_set_up(self, _: Any) -> None:
        self.flow.free_links()
        self._network.call(OPEN, self.number)

    # ---- the process that writes ------------------------------------------------------------------------------------

    def stop(self, until_s: float) -> None:
        network = self._network
        spare = network.keep(self._deliver, None)
        sending = self.record.sending
        network.call(STOP, self.number, spare, until_s)
        self._stopped_until_s = max(until_s, self._stopped_until_s)
        if self.record.rest == spare:
            network.move_item(sending, spare)
        if until_s < math.inf and self.busy:
            self._clock.at(until_s, self._continue)

    def _continue(self, _: Any) -> None:
        if self._clock.now >= self._stopped_until_s:
            self.flow.free_links()
            self._network.call(PUMP, self.number)

    # ---- the path ---------------------------------------------------------------------------------------------------

    def path_changed(self) -> None:
        """Follow a changed link of the path. While the path is down, the sender does not notice changes."""
        if self._left is None:
            self._network.path(self._path)
            self._network.call(PATH_CHANGED, self.number)

    def state_changed(self) -> None:
        """Handle that a link of the path, or of the path of its acknowledgements, has gone down or come up."""
        if self._left is None:
            self._network.path(self._path)
            self._network.call(STATE_CHANGED, self.number)


def _copy(record: Any) -> Any:
    """Return a copy of a compiled record. Python's records stay as they are when the network begins anew."""
    return record if hasattr(record, "__struct_fields__") else type(record).from_buffer_copy(record)
