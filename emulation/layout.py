"""Makes namespaces, cables, addresses and routes from a plan. Pure: the same plan gives the same layout.

A site is a gateway router, a LAN switch and its nodes. A pair of directed WAN links is one cable between gateways or
routers, with a /30 subnet of its own. With netem, a two-port switch is put into every WAN cable (all of them in one
namespace, ``wires``), so that the delay is on another port than the rate, and neither is on a sending host's.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections import defaultdict
from dataclasses import dataclass

from testbed.errors import ScenarioError
from testbed.plan.model import EMULATED_LAN_CEILING_BPS, LinkPlan, NetworkPlan, Plan, SitePlan

WAN_ADDRESSES = ipaddress.IPv4Network("198.18.0.0/15")  # set aside for network tests (RFC 2544)
WAN_PREFIX_BITS = 30  # of the subnet of a WAN link: two addresses
WIRES = "wires"
BRIDGE = "br0"
LAN_QUEUE_BYTES = 524_288
Bridge = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """An interface in the namespace ``vertex``; ``address`` is in CIDR notation, None on a switch."""

    vertex: str
    interface: str
    address: str | None = None

    @property
    def ip(self) -> str:
        """The address without the length of its prefix."""
        assert self.address is not None, f"{self.vertex} {self.interface} has no address"
        return self.address.split("/")[0]


@dataclass(frozen=True, slots=True)
class Cable:
    """A veth pair."""

    a: SwitchPort
    b: SwitchPort


@dataclass(frozen=True, slots=True)
class Route:
    """The route to ``subnet`` via ``via``; with ``source``, for packets from that subnet only (policy routing)."""

    vertex: str
    subnet: str
    via: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class EmulatedWanLink:
    """One direction: rate and queue at ``egress``; delay by a delay line at ``ingress``, or by netem at ``wire``."""

    plan: LinkPlan
    egress: SwitchPort
    ingress: SwitchPort
    wire: SwitchPort | None


@dataclass(frozen=True, slots=True)
class LanPort:
    """A port of a node, gateway or switch whose outgoing direction is shaped to its LAN's rate."""

    port: SwitchPort
    rate_bps: float
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class LanDelay:
    """Packets that arrive from the LAN at ``port`` of a node or gateway are delayed there, or by netem at ``wire``."""

    port: SwitchPort
    wire: SwitchPort | None
    delay_s: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything to be created. ``hosts`` maps node names to ports; ``bridges`` are (vertex, bridge, ports)."""

    hosts: dict[str, SwitchPort]
    gateways: dict[str, SwitchPort]
    routers: tuple[str, ...]
    switches: tuple[str, ...]
    cables: tuple[Cable, ...]
    bridges: tuple[Bridge, ...]
    routes: tuple[Route, ...]
    wan: tuple[EmulatedWanLink, ...]
    lan: tuple[LanPort, ...]
    lan_delays: tuple[LanDelay, ...]
    subnets: dict[str, str]

    @property
    def vertices(self) -> tuple[str, ...]:
        return (*self.hosts, *self.gateways, *self.routers, *self.switches)

    def ports_of(self, vertex: str) -> list[SwitchPort]:
        """Return the vertex' ends of cables, in creation order."""
        ends = [end for cable in self.cables for end in (cable.a, cable.b)]
        return [end for end in ends if end.vertex == vertex]


def lay_out(plan: Plan, *, wires: bool) -> Layout:
    """Return the layout of ``plan``. ``wires``: put a switch into every WAN cable, for netem.

    Raise ``ScenarioError`` if a link has no opposite direction, a node has no address, or a subnet is full.
    """
    network = plan.network
    subnets = {site.name: _subnet(plan, site) for site in network.sites}
    hosts: dict[str, SwitchPort] = {}
    gateways: dict[str, SwitchPort] = {}
    lan_cables: list[Cable] = []
    lan_ports: list[LanPort] = []
    lan_delays: list[LanDelay] = []
    bridges: list[Bridge] = []
    lan_bridges: list[Bridge] = []
    for site in network.sites:
        gateway, members, cables = _lan(plan, site, subnets[site.name])
        gateways[site.name] = gateway
        hosts.update(members)
        bridges.append((_switch(site), BRIDGE, tuple(cable.b.interface for cable in cables)))
        lan_ports += _lan_shaping(site, cables)
        if not site.emulated_lan_delay_s:
            lan_cables += cables
            continue
        for cable in cables:
            delay, halves, bridge = _delayed(cable, site.lan_delay_s, len(lan_delays), wires)
            lan_delays.append(delay)
            lan_cables += halves
            lan_bridges += bridge
    wan, wan_cables, wan_bridges = _wan(network, wires)
    return Layout(
        hosts,
        gateways,
        network.routers,
        (*(_switch(site) for site in network.sites), *((WIRES,) if wires else ())),
        (*lan_cables, *wan_cables),
        (*bridges, *lan_bridges, *wan_bridges),
        (
            *(Route(name, "default", gateways[name.split("/")[0]].ip) for name in hosts),
            *_wan_routes(network, wan, subnets),
        ),
        tuple(wan),
        tuple(lan_ports),
        tuple(lan_delays),
        subnets,
    )


def _switch(site: SitePlan) -> str:
    return f"{site.name}/lan"


def _subnet(plan: Plan, site: SitePlan) -> str:
    if site.subnet:
        return site.subnet
    for node in plan.nodes:
        if node.data_center == site.name and node.address:
            return str(ipaddress.ip_interface(f"{node.address}/24").network)
    return f"10.{site.index // 250}.{site.index % 250}.0/24"


def _lan(plan: Plan, site: SitePlan, subnet: str) -> tuple[SwitchPort, dict[str, SwitchPort], list[Cable]]:
    """Gateway's port, the nodes' ports, and their cables to the switch (port ``p0`` leads to the gateway)."""
    network = ipaddress.ip_network(subnet)
    nodes = [node for node in plan.nodes if node.data_center == site.name]
    missing = [node.name for node in nodes if not node.address]
    if missing:
        raise ScenarioError(f"{missing[0]} has no address in the plan; build the plan for the back end 'emulate'")
    taken = {node.address for node in nodes}
    candidates = (str(network[-2 - number]) for number in range(network.num_addresses - 2))
    free = [address for address in itertools.islice(candidates, len(nodes) + 2) if address not in taken]
    has_background = any(site.name in (traffic.source, traffic.target) for traffic in plan.background)
    extra = [f"{site.name}/background"] if has_background else []
    if len(free) < 1 + len(extra):
        raise ScenarioError(f"{site.name}: its nodes leave no free address in {subnet} for the gateway")
    gateway = SwitchPort(site.name, "lan", f"{free[0]}/{network.prefixlen}")
    addresses = {node.name: node.address for node in nodes} | dict(zip(extra, free[1:], strict=False))
    hosts = {name: SwitchPort(name, "eth0", f"{address}/{network.prefixlen}") for name, address in addresses.items()}
    ends = [gateway, *hosts.values()]
    return gateway, hosts, [Cable(end, SwitchPort(_switch(site), f"p{number}")) for number, end in enumerate(ends)]


def _lan_shaping(site: SitePlan, cables: list[Cable]) -> list[LanPort]:
    if site.lan_rate_bps > EMULATED_LAN_CEILING_BPS:
        return []
    queue = max(LAN_QUEUE_BYTES, int(site.lan_rate_bps / 8 * 0.02))
    return [LanPort(end, site.lan_rate_bps, queue) for cable in cables for end in (cable.a, cable.b)]


def _delayed(cable: Cable, delay_s: float, number: int, wires: bool) -> tuple[LanDelay, list[Cable], list[Bridge]]:
    """Return a delay before the cable's first end, and the cable, for netem with a switch in it."""
    if not wires:
        return LanDelay(cable.a, None, delay_s), [cable], []
    near = SwitchPort(WIRES, f"near{number}")
    far = SwitchPort(WIRES, f"far{number}")
    bridge = (WIRES, f"lan{number}", (near.interface, far.interface))
    return LanDelay(cable.a, near, delay_s), [Cable(cable.a, near), Cable(far, cable.b)], [bridge]


def _wan(network: NetworkPlan, wires: bool) -> tuple[list[EmulatedWanLink], list[Cable], list[Bridge]]:
    """Return the WAN links, with addresses in the order of the plan's links, their cables, and the bridges in these."""
    links: list[EmulatedWanLink] = []
    cables: list[Cable] = []
    bridges: list[Bridge] = []
    numbers: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
    blocks = WAN_ADDRESSES.subnets(new_prefix=WAN_PREFIX_BITS)
    directed = {(link.source, link.target): link for link in network.links}
    for forward in network.links:
        backward = directed.get((forward.target, forward.source))
        if backward is None:
            raise ScenarioError(f"link {forward.name} has no opposite direction; emulated cables need both")
        if forward.source > forward.target:
            continue  # the other one of the pair makes the cable
        block = next(blocks)
        a, b = (
            SwitchPort(vertex, f"wan{next(numbers[vertex])}", f"{address}/{WAN_PREFIX_BITS}")
            for vertex, address in ((forward.source, block[1]), (forward.target, block[2]))
        )
        left = right = None
        if wires:
            number = len(bridges)
            left = SwitchPort(WIRES, f"l{number}")
            right = SwitchPort(WIRES, f"r{number}")
            bridges.append((WIRES, f"br{number}", (left.interface, right.interface)))
            cables += [Cable(a, left), Cable(b, right)]
        else:
            cables.append(Cable(a, b))
        links += [EmulatedWanLink(forward, a, b, right), EmulatedWanLink(backward, b, a, left)]
    return links, cables, bridges


def _wan_routes(network: NetworkPlan, wan: list[EmulatedWanLink], subnets: dict[str, str]) -> list[Route]:
    """Return one route per vertex and destination; where the paths of sources diverge, one per source.

    The next hop that most sources use becomes the plain route, and the others get a rule for their source's subnet.
    """
    links = {link.plan.name: link for link in wan}
    hops: defaultdict[tuple[str, str], defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pair, path in network.routes.items():
        source, target = pair.split(">")
        for name in path:
            hops[links[name].plan.source, target][links[name].ingress.ip].append(source)
    routes = []
    for (vertex, target), sources_by_hop in hops.items():
        common = max(sources_by_hop, key=lambda via: (len(sources_by_hop[via]), via))
        routes.append(Route(vertex, subnets[target], common))
        for via, sources in sources_by_hop.items():
            if via != common:
                routes += [Route(vertex, subnets[target], via, subnets[source]) for source in sources]
    return routes
