"""Keeps the flow connections over each WAN link: passes them the link's changes, and counts the bytes they carry."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.simulation.clock import Clock
from testbed.simulation.flows.connection import FlowConnection
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.link_monitor import LinkCounters
from testbed.simulation.paths import PathTable, SitePath, WanLink
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.validity import doubts

_DOWN_BYTES_PER_S = 1e-6  # capacity of a link that is down; not 0, so that every flow has an end

Place = tuple[str, str, int]  # identifies a connection: sender, receiver, and number of the flow group between them


class FlowLinks:
    """A ``LinkUser``."""

    def __init__(self, clock: Clock, network: FlowNetwork, paths: PathTable) -> None:
        self._clock = clock
        self._network = network
        self._paths = paths
        self._connections: dict[int, dict[FlowConnection, None]] = {link.number: {} for link in paths.links}
        self._by_path: dict[SitePath, dict[FlowConnection, None]] = {}
        self._places: dict[Place, tuple[SitePath, FlowConnection]] = {}
        self._replaced: dict[FlowConnection, tuple[SitePath, Place]] = {}  # replaced by others, but may still send
        self._training_since_s = 0.0

    def add(self, connection: FlowConnection, path: SitePath, links: tuple[int, ...], place: Place) -> None:
        """Add a connection over these links. It replaces the earlier connection with the same ``place``."""
        if place in self._places:
            before_path, before = self._places[place]
            self._replaced[before] = before_path, place
        self._places[place] = path, connection
        self._forget_replaced()
        self._by_path.setdefault(path, {})[connection] = None
        for number in links:
            if number in self._connections:
                self._connections[number][connection] = None
                connection.flow.record.watched = True

    def _forget_replaced(self) -> None:
        """Forget replaced connections that have sent everything; every checkpoint and restart replaces some."""
        for connection, (path, place) in list(self._replaced.items()):
            if not connection.busy:
                self._places[place][1].take_over(connection)  # the newest connection counts for all before it
                del self._replaced[connection], self._by_path[path][connection]
                for number in connection.flow.path:
                    self._connections.get(number, {}).pop(connection, None)

    def forget_bursts(self) -> None:
        """Count the bursts of each connection from now on only, because training begins."""
        self._training_since_s = self._clock.now
        for connections in self._connections.values():
            for connection in connections:
                connection.forget_bursts()

    def doubts(self, model: TcpModel, cure: str) -> list[str]:
        """Return where the window model may be off for these connections; see ``validity``."""
        return doubts(self._paths.links, self._connections, model, self._clock.now - self._training_since_s, cure)

    def begin_anew(self) -> None:
        """Prepare for a new beginning of the network without the present connections."""
        self._network.carried_bytes(())  # brings the counts of the present connections up to date
        for connections in self._by_path.values():
            for connection in connections:
                connection.leave()

    def counters(self, links: Sequence[WanLink]) -> list[LinkCounters]:
        """Return the bytes that links have carried."""
        carried = self._network.carried_bytes([link.number for link in links])
        return [LinkCounters(carried_bytes / self._paths.goodput) for carried_bytes in carried]

    def link_changed(self, link: WanLink, what: str, passed: bool) -> None:
        """See ``LinkUser``."""
        if what in ("state", "rate"):
            left_bps = link.left_bps if link.up else 0.0
            self._network.set_capacity(link.number, max(self._paths.capacity(left_bps), _DOWN_BYTES_PER_S))
        self._forget_replaced()
        came_or_went = link.passes != passed
        for connection in self._connections[link.number]:
            if what != "state":
                connection.path_changed()
            if came_or_went:
                connection.state_changed()
        if what != "delay" and not came_or_went:
            return
        crossing = dict.fromkeys(self._paths.crossing(link))
        for path in crossing:  # acknowledgements of data on the reverse path cross the link
            if path.reverse is not None and path.reverse not in crossing:
                for connection in self._by_path.get(path.reverse, ()):
                    if what == "delay":
                        connection.path_changed()
                    else:
                        connection.state_changed()
