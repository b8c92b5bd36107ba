"""Places the nodes of a deployment on machines; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.cluster.connection import ClusterMachine
from testbed.errors import CapabilityError
from testbed.numbers import counted
from testbed.plan.model import Plan
from testbed.settings.run import Cluster, Machines

ANY_ADDRESS = "0.0.0.0"
SLOT = "emulate"
"""Name of the Ray resource of machines that may emulate. A run takes all of it, so a machine runs one at a time."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A machine in a run, with its nodes.

    name         such as ``tokyo/machine0``
    data_center  data centre of its nodes
    ports        port on which each of its nodes listens (0: any)
    bind         IP address on which its nodes listen
    inside       IP address at which nodes of the same data centre reach them
    advertise    IP address at which nodes of other data centres reach them
    """

    name: str
    data_center: str
    machine: ClusterMachine
    ports: Mapping[str, int]
    bind: str
    inside: str
    advertise: str

    def seen_from(self, data_center: str) -> str:
        """Return the IP address at which nodes of ``data_center`` reach the nodes here."""
        return self.inside if data_center == self.data_center else self.advertise


def cluster_of(plan: Plan) -> Cluster:
    """Return the cluster settings of a Plan that is to be deployed."""
    assert plan.cluster is not None, "only a Plan for clusters is deployed"
    return plan.cluster


def place(plan: Plan, found: Mapping[str, Sequence[ClusterMachine]]) -> tuple[Placement, ...]:
    """Return the machines of a run with their nodes.

    The nodes of a data centre are assigned to its machines in turn, in the order of the Plan. Raise ``CapabilityError``
    if a data centre has fewer machines than the scenario asks for.

    found  the cluster's machines, by data centre
    """
    placements: list[Placement] = []
    for name, wanted in cluster_of(plan).data_centers.items():
        machines = list(found[name])
        if not machines or len(machines) < wanted.machines:
            raise CapabilityError(
                f"cluster.data_centers.{name}: needs {counted(wanted.machines or 1, 'machine')} with the label "
                f"{wanted.label}, but the cluster has {len(machines)}; cure: `ray start --labels "
                f"{wanted.label}` on them, or another label or number"
            )
        placements += _placed(plan, name, wanted, machines[: wanted.machines or None])
    return tuple(placements)


def _placed(plan: Plan, name: str, wanted: Machines, machines: Sequence[ClusterMachine]) -> Iterator[Placement]:
    nodes = [node.name for node in plan.nodes if node.data_center == name]
    ports = {node: wanted.ports[0] + number if wanted.ports else 0 for number, node in enumerate(nodes)}
    for number, machine in enumerate(machines[: len(nodes)]):
        own = {node: ports[node] for node in nodes[number :: len(machines)]}
        yield placed_on(machine, wanted, f"{name}/machine{number}", name, own)


def placed_on(
    machine: ClusterMachine, wanted: Machines, name: str, data_center: str, ports: Mapping[str, int]
) -> Placement:
    """Return the placement of nodes, with their ``ports``, on a machine. ``wanted`` may set their addresses."""
    bind = wanted.bind or machine.address
    inside = machine.address if bind == ANY_ADDRESS else bind
    return Placement(name, data_center, machine, ports, bind, inside, wanted.advertise or inside)
