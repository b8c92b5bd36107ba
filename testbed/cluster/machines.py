"""Placement of the nodes of a Plan on machines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.cluster.connection import ClusterMachine
from testbed.errors import CapabilityError
from testbed.plan.model import ClusterPlan, MachinesPlan, NetworkPlan, Plan

ANY_ADDRESS = "0.0.0.0"
SLOT = "emulate"
"""The resource of machines that may emulate: one such run at a time on each."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A machine in a run, and its nodes, each with the port at which it listens (0: any).

    name          ``tokyo/machine0`` in a deployment, where a machine has nodes of one data centre; else ``machine0``
    data_centers  of its nodes
    bind          IP address at which its nodes listen
    inside        at which nodes of the same data centre reach them
    advertise     at which the nodes of other data centres do
    """

    name: str
    data_centers: tuple[str, ...]
    machine: ClusterMachine
    ports: Mapping[str, int]
    bind: str
    inside: str
    advertise: str

    @property
    def data_center(self) -> str:
        """The data centre of a machine of a deployment; of several, all their names."""
        return ", ".join(self.data_centers)

    def seen_from(self, data_center: str) -> str:
        """Return the IP address at which nodes of ``data_center`` reach the nodes here."""
        return self.inside if data_center in self.data_centers else self.advertise


def cluster_of(plan: Plan) -> ClusterPlan:
    """Return where the run is deployed."""
    assert plan.cluster is not None, "a Plan for clusters says where"
    return plan.cluster


def place(plan: Plan, found: Mapping[str, Sequence[ClusterMachine]]) -> tuple[Placement, ...]:
    """Return the machines of a run, and which nodes are on each.

    Of a deployment, a data centre's nodes go to its machines in turn, in the order of the Plan. Emulated data centres
    are whole on one machine each, so that all machines have about as many nodes for each core.

    found  machines by data centre. Raise ``CapabilityError`` if there are fewer than the scenario asks for.
    """
    return _spread(plan, found) if plan.back_end == "emulate" else _deployed(plan, found)


def _deployed(plan: Plan, found: Mapping[str, Sequence[ClusterMachine]]) -> tuple[Placement, ...]:
    placements: list[Placement] = []
    for name, wanted in cluster_of(plan).data_centers.items():
        machines = list(found[name])
        if not machines or len(machines) < wanted.machines:
            raise CapabilityError(
                f"cluster.data_centers.{name}: {wanted.machines or 'any number of'} machines with the label "
                f"{wanted.label} are wanted, the cluster has {len(machines)}; cure: `ray start --labels "
                f"{wanted.label}` on them, or another label or number"
            )
        placements += _placed(plan, name, wanted, machines[: wanted.machines or None])
    return tuple(placements)


def _placed(plan: Plan, name: str, wanted: MachinesPlan, machines: Sequence[ClusterMachine]) -> Iterator[Placement]:
    nodes = [node.name for node in plan.nodes if node.data_center == name]
    ports = {node: wanted.first_port + number if wanted.first_port else 0 for number, node in enumerate(nodes)}
    for number, machine in enumerate(machines[: len(nodes)]):
        own = {node: ports[node] for node in nodes[number :: len(machines)]}
        yield placed_on(machine, wanted, f"{name}/machine{number}", name, own)


def placed_on(
    machine: ClusterMachine, wanted: MachinesPlan, name: str, data_center: str, ports: Mapping[str, int]
) -> Placement:
    """Return a machine with the nodes that have ``ports``, and where they are reached."""
    bind = wanted.bind or machine.address
    inside = machine.address if bind == ANY_ADDRESS else bind
    return Placement(name, (data_center,), machine, ports, bind, inside, wanted.advertise or inside)


# ---- emulated -------------------------------------------------------------------------------------------------------


def _spread(plan: Plan, found: Mapping[str, Sequence[ClusterMachine]]) -> tuple[Placement, ...]:
    machines = _chosen(cluster_of(plan), found)
    nodes = Counter(node.data_center for node in plan.nodes)
    sites: dict[str, list[str]] = {machine.address: [] for machine in machines}
    # those with the fewest machines to choose from first, then the largest, each to the machine with most room
    for name in sorted(nodes, key=lambda each: (len(found[each]), -nodes[each])):
        addresses = {machine.address for machine in found[name]}
        able = [machine for machine in machines if machine.address in addresses]
        best = min(
            able, key=lambda each: sum(nodes[site] for site in (*sites[each.address], name)) / max(each.cores, 1)
        )
        sites[best.address].append(name)
    placements: list[Placement] = []
    for machine in machines:
        if own := sites[machine.address]:
            ports = {node.name: node.port for node in plan.nodes if node.data_center in own}
            names, at = tuple(site.name for site in plan.network.sites if site.name in own), machine.address
            placements.append(Placement(f"machine{len(placements)}", names, machine, ports, at, at, at))
    return tuple(placements)


def _chosen(wanted: ClusterPlan, found: Mapping[str, Sequence[ClusterMachine]]) -> list[ClusterMachine]:
    """Return the machines to use: those that a data centre has to be on, and others up to their number.

    Two of Ray's nodes with one address are one machine: it cannot have both ends of a tunnel.
    """
    needed: dict[str, ClusterMachine] = {}
    for name, site in wanted.data_centers.items():
        if not found[name]:
            which = f" and the label {site.label}" if site.label else ""
            raise CapabilityError(
                f"cluster.data_centers.{name}: no machine of the cluster has a slot '{SLOT}'{which}; cure: `ray start "
                f"--resources='{{\"{SLOT}\": 1}}'` on machines where `testbed doctor` finds that they can emulate"
            )
        if site.label and not any(machine.address in needed for machine in found[name]):
            needed[found[name][0].address] = found[name][0]
    everywhere = {machine.address: machine for machines in found.values() for machine in machines}
    chosen = {**needed, **everywhere}
    if wanted.machines > len(chosen) or (wanted.machines and wanted.machines < len(needed)):
        raise CapabilityError(
            f"cluster.machines: {wanted.machines} are wanted, {len(chosen)} have a slot '{SLOT}', and labels of data "
            f"centres ask for {len(needed)}; write another number, or start Ray with the slot on more machines"
        )
    return list(chosen.values())[: wanted.machines or None]


def machines_of(network: NetworkPlan, placements: Sequence[Placement]) -> dict[str, str]:
    """Return the machine of each data centre and router of an emulated network. Routers go where most neighbours are.

    A data centre without nodes is on the first machine.
    """
    found = {site: placement.name for placement in placements for site in placement.data_centers}
    for site in network.sites:
        found.setdefault(site.name, placements[0].name)
    left = list(network.routers)
    while left:
        around = {
            router: Counter(
                found[end] for link in network.links if link.source == router and (end := link.target) in found
            )
            for router in left
        }
        router = max(left, key=lambda each: sum(around[each].values()))
        (name, _), *_ = around[router].most_common(1) or [(placements[0].name, 0)]
        found[router] = name
        left.remove(router)
    return found
