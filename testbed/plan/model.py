"""The Plan: everything that a back end needs to know, fully expanded, as plain frozen data.

A Scenario is what a person may write; a Plan is what a machine executes. Back ends and analysis read only this.
It is JSON (``to_json``/``from_json``), pure, and the same for the same scenario and seed, byte for byte.
Times are seconds since the start of training, rates are bits per second, sizes are bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from testbed.axes import CodeFile
from testbed.errors import ScenarioError
from testbed.facilities import BACK_ENDS, Facilities
from testbed.ids import link_name
from testbed.settings.job import Choice, Device, Program, TracedJob, Training
from testbed.settings.network import OneWay
from testbed.settings.run import Background, Cluster, Exact, Recovery, Simulation, Timeouts, Transport
from testbed.settings.series import Series

if TYPE_CHECKING:
    from topologies.graph import Paths

PLAN_VERSION = 1
DECLARED = "declared"

# What emulation can make: below the lowest rate one frame would block a link for seconds, whatever its rate is then;
# above the highest, two cores cannot move a LAN's packets through a queue.
EMULATED_LOWEST_RATE_BPS = 64e3
EMULATED_LAN_CEILING_BPS = 2e9
OFFLOADED_LAN_BPS = 500e6  # from this rate on, nodes of an emulated LAN hand frames of up to 64 KB to their ports
# Shorter delays are left to an emulated LAN's cables and switch, which take some 0.05 ms (8 µs in virtual time).
EMULATED_LAN_DELAY_FLOOR_S = 0.5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One process. ``rank`` counts within the role over the whole run, in data-centre order.

    role        ``worker`` | ``server`` (tier 1, one LAN) | ``global_server`` (tier 2) | ``replica`` | ``scheduler``
    parents     the servers this node pushes to (several: keys are sharded over them); empty for the top tier. Where
                the workers of a data centre sum among themselves, the first of them pushes for all
    children    the nodes that push to this one, in rank order
    trains      whether a worker contributes gradients (the master worker of a central party may not)
    stage       of a pipeline: what a worker computes, or whose parameters a server has; ``None`` without one
    address     IPv4 address inside the emulated network; ``None`` when the back end has no addresses
    """

    name: str
    role: str
    data_center: str
    rank: int
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    trains: bool = True
    stage: int | None = None
    address: str | None = None
    port: int = 0
    device: Device = Device(pace="paced")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan(OneWay):
    """One direction of a WAN link between two vertices (data-centre gateways or routers).

    A ``rate_trace`` holds bits per second and replaces ``rate_bps`` while training runs; 0 is an outage: the link is
    down. The queue is a byte-limited FIFO. ``state_trace`` is 1 while the link is up, 0 while it is down and loses
    everything. ``burst_trace``, ``corruption_trace``, ``duplication_trace``, ``reordering_trace``: those values, as
    faults change them.
    """

    queue_bytes: int
    rate_trace: Series | None = None
    delay_trace: Series | None = None
    loss_trace: Series | None = None
    state_trace: Series | None = None
    burst_trace: Series | None = None
    corruption_trace: Series | None = None
    duplication_trace: Series | None = None
    reordering_trace: Series | None = None

    @property
    def lost(self) -> float:
        """Share of packets that do not arrive, or not as they were sent."""
        return 1 - (1 - self.loss) * (1 - self.corruption)


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """A data centre: its gateway is a vertex of the WAN; its nodes hang on one LAN switch."""

    name: str
    index: int
    lan_rate_bps: float
    lan_delay_s: float
    central: bool = False
    subnet: str | None = None

    @property
    def emulated_lan_delay_s(self) -> float:
        """What emulation adds to the delay of cables and switch."""
        return self.lan_delay_s if self.lan_delay_s >= EMULATED_LAN_DELAY_FLOOR_S else 0.0

    @property
    def is_unshaped(self) -> bool:
        """Whether emulation leaves the LAN as the machine's memory is: faster than it can make, without delay."""
        return self.lan_rate_bps > EMULATED_LAN_CEILING_BPS and self.lan_delay_s == 0


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """Sites, further routers, directed links, and for ordered pairs of sites the links of the path between them.

    ``routing``: by what the shortest path is chosen (``topologies.graph``), for pairs of very many sites that are
    simulated, of which ``routes`` has only those with the central one.
    """

    sites: tuple[SitePlan, ...]
    routers: tuple[str, ...]
    links: tuple[LinkPlan, ...]
    routes: dict[str, tuple[str, ...]]  # "virginia>tokyo": ("virginia>core", "core>tokyo")
    routing: str = "delay"

    @cached_property
    def _paths(self) -> dict[str, Paths]:
        """Of the sites whose routes are left out, as far as they have been asked for."""
        return {}

    def between(self, source: str, target: str) -> tuple[str, ...]:
        """Names of the links from one site to another. ``ScenarioError`` if there is no path."""
        name = link_name(source, target)
        if name in self.routes:
            return self.routes[name]
        if source not in self._paths:
            from topologies.graph import Paths

            edges = [(link.source, link.target, link.delay_s) for link in self.links]
            self._paths[source] = Paths(edges, source, self.routing, backwards=False)
        if target not in self._paths[source]:
            raise ScenarioError(f"the Plan has no route {name}; its nodes cannot talk to each other")
        return tuple(link_name(a, b) for a, b in pairwise(self._paths[source].path(target)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """One fault, resolved: what, to whom, when. ``at_s`` counts from the start of training.

    kind      of nodes ``kill`` | ``pause`` | ``slow`` | ``join`` | ``leave``, and by round ``nan`` | ``disk_full`` |
              ``attack``; of links ``down`` | ``rate`` | ``loss`` | ``delay`` | ``corrupt`` | ``duplicate`` |
              ``reorder``. ``slow`` and those of links are also in the node's slowdown and the link's traces, which is
              where back ends take them from
    targets   names of nodes, or of directed links
    at_s      ``None``: when any worker has finished ``round`` (``nan``, ``disk_full``: in that very round; ``attack``:
              from it on; ``leave``: when it has finished that round itself)
    for_s     how long it lasts; infinite: for good
    value     factor, rate in bit/s, share of packets, delay in s, number of rounds (``disk_full``), or strength
    burst     ``loss``: mean length of a burst of losses, in packets; 0: the link's own
    attack    ``attack``: what the worker does to what it pushes, from ``round`` on
    """

    kind: str
    targets: tuple[str, ...]
    at_s: float | None = None
    round: int | None = None
    for_s: float = math.inf
    value: float = 0.0
    burst: float = 0.0
    attack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan(Training[Choice]):
    """The job, with techniques by their names and options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniquePlan:
    """One value per axis. ``tier1`` is worker to local server (LAN), ``tier2`` is local to global server (WAN)."""

    paradigm: Choice
    sync_tier1: Choice
    sync_tier2: Choice
    optimizer: Choice  # options: learning_rate, …; "at": "global" | "worker"
    codec_tier1: Choice
    codec_tier2: Choice
    order: Choice
    overlay_tier1: Choice
    overlay_tier2: Choice
    shard: Choice
    outer_optimizer: Choice = field(default_factory=lambda: Choice(kind=DECLARED))  # that of the synchronisation
    aggregation_tier1: Choice = Choice(kind="mean")  # noqa: RUF009 - a frozen value, which may be shared
    aggregation_tier2: Choice = Choice(kind="mean")  # noqa: RUF009 - a frozen value, which may be shared


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """How the workers of a replica make each step together. ``TechniquePlan.paradigm`` is that of a stage's replicas.

    cuts              the first segments of all parts but the first
    tasks             by stage, the passes that it computes, in order: F0 is micro-batch 0 forward, B backward, W the
                      gradients of weights; F0.1 is that of its second chunk. The schedule has made them
    activation_bytes  of a micro-batch, as they travel from each part of the model to the next one, at most;
                      ``gradient_bytes``: those of the gradients that come back
    """

    stages: int
    micro_batches: int
    schedule: Choice
    cuts: tuple[int, ...]
    activations: Choice
    activation_gradients: Choice
    recompute: bool = False
    error_feedback: bool = False
    tasks: tuple[str, ...] = ()  # empty in Plans of an earlier release, as what follows
    activation_bytes: tuple[int, ...] = ()
    gradient_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """See the module's docstring. What follows from the nodes is computed once, for thousands of nodes ask.

    summed_gradients  workers whose gradients one step of the optimizer adds up; 1 where the length of a gradient does
                      not count. Steps of runs with other numbers are not as long, at an equal learning rate
    """

    version: int
    name: str
    seed: int
    back_end: Annotated[str, msgspec.Meta(pattern="^(emulate|simulate|local|exact|cluster)$")]
    nodes: tuple[NodePlan, ...]
    network: NetworkPlan
    transport: Transport
    training: TrainingPlan
    technique: TechniquePlan
    timeouts: Timeouts
    warnings: tuple[str, ...] = ()
    checkpoint_every: int = 0  # rounds between two checkpoints; 0: none
    background: tuple[Background, ...] = ()
    faults: tuple[FaultPlan, ...] = ()
    recovery: Recovery = Recovery()
    simulation: Simulation = Simulation(network="flows")
    exact: Exact | None = None  # if that is the back end
    cluster: Cluster | None = None  # if that is the back end
    code: tuple[CodeFile, ...] = ()  # of techniques, topology readers and trace formats that are not shipped
    program: Program | None = None  # instead of a training
    traced: TracedJob | None = None  # likewise
    pipeline: PipelinePlan | None = None  # if models are cut into stages
    summed_gradients: int = 1

    @property
    def is_spread(self) -> bool:
        """Whether agents on the machines of a cluster start its nodes."""
        return self.cluster is not None

    def node(self, name: str) -> NodePlan:
        """The node of that name; ``KeyError`` if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, NodePlan]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _by_role(self) -> Mapping[str, tuple[NodePlan, ...]]:
        roles = dict.fromkeys(node.role for node in self.nodes)
        return {role: tuple(node for node in self.nodes if node.role == role) for role in roles}

    def with_role(self, role: str) -> tuple[NodePlan, ...]:
        """All nodes of one role, in rank order."""
        return self._by_role.get(role, ())

    @property
    def title(self) -> str:
        """Its name and where it runs, for a person."""
        return f"{self.name} on {self.back_end}"

    @property
    def facilities(self) -> Facilities:
        """What the run has where it is made."""
        return BACK_ENDS[self.back_end]

    def simulated(self, simulation: Simulation) -> Plan:
        """Return the Plan of the same run, simulated in this way."""
        return replace(self, back_end="simulate", simulation=simulation)

    @property
    def is_emulated(self) -> bool:
        """Whether its nodes are processes of this machine, or of others, behind emulated links."""
        return self.back_end == "emulate"

    @property
    def is_exact(self) -> bool:
        """Whether it is emulated in a kernel of its own, in virtual time."""
        return self.back_end == "exact"

    @cached_property
    def has_wan(self) -> bool:
        """Whether what data centres send each other crosses the links of the Plan; on loopback it does not."""
        return self.facilities.has_wan and len(self.network.sites) > 1

    @cached_property
    def training_workers(self) -> tuple[NodePlan, ...]:
        """Workers that contribute, in rank order."""
        return tuple(worker for worker in self.with_role("worker") if worker.trains)

    @cached_property
    def training_workers_by_parent(self) -> Counter[str]:
        return Counter(parent for worker in self.training_workers for parent in worker.parents)

    @cached_property
    def late_comers(self) -> tuple[str, ...]:
        """Names of the nodes that join later: those of the faults, and servers all of whose workers join, with them."""
        named = {name for fault in self.faults if fault.kind == "join" for name in fault.targets}
        if not named:
            return ()
        late = set(named)
        for server in self.with_role("server"):
            if server.name in named or (server.children and named.issuperset(server.children)):
                late.update((server.name, *server.children))
        return tuple(node.name for node in self.nodes if node.name in late)

    @cached_property
    def first_workers(self) -> int:
        """The number of training workers that begin together: of those that do not join later."""
        return len({worker.name for worker in self.training_workers}.difference(self.late_comers))

    @cached_property
    def contributing(self) -> frozenset[str]:
        """Names of the training workers, and of the servers that they push to."""
        parents = {parent for worker in self.training_workers for parent in worker.parents}
        return frozenset(parents.union(worker.name for worker in self.training_workers))

    def site(self, name: str) -> SitePlan:
        """The data centre of that name; ``KeyError`` if there is none."""
        for site in self.network.sites:
            if site.name == name:
                return site
        raise KeyError(name)


def monitor_of(plan: Plan) -> str:
    """The node that all others keep a heartbeat connection to, and that ends last."""
    schedulers = plan.with_role("scheduler")
    return (schedulers or plan.nodes)[0].name


def resumes_clock(plan: Plan) -> bool:
    """Return whether a run that begins with a checkpoint of another one goes on with its clock, as simulations do."""
    return not plan.facilities.has_processes


def job_sha256(plan: Plan) -> str:
    """Return the hash of what two runs must share for one to resume the other: all but place, pace and length."""
    training = plan.training
    nodes = [(node.name, node.role, node.parents, node.trains) for node in plan.nodes]
    job = (training.model, training.data, training.split, training.batch_size, training.compute)
    content = msgspec.json.encode(msgspec.to_builtins((plan.seed, plan.technique, nodes, job)), order="sorted")
    return hashlib.sha256(content).hexdigest()


def computes_in_real_time(plan: Plan) -> bool:
    """Return whether the run's clock goes on while a node computes."""
    return plan.facilities.has_processes


def to_json(plan: Plan) -> bytes:
    """Readable JSON, one value for one Plan. Infinity is written as ``null``."""
    return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(plan)), indent=2)


def from_json(text: bytes) -> Plan:
    """Inverse of ``to_json``. ``msgspec.ValidationError`` when it is not a Plan."""
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except msgspec.ValidationError:  # ``null`` may be infinity
        plan = msgspec.convert(_without_null(msgspec.json.decode(text)), Plan)
    # ``replace``: msgspec leaves out what has a default, and so would ``to_json``
    return replace(plan)


def completed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``to_json`` writes of a Plan with this content: keys that an earlier release lacks have defaults.

    ``msgspec.ValidationError`` when it is not a Plan.
    """
    plan = replace(msgspec.convert(_without_null(content), Plan))  # a new one, as msgspec leaves defaults out
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(plan)))
    return found


_CONTAINERS = (dict, list)  # of JSON


def _without_null(value: Any) -> Any:
    """Without the keys that hold ``null``: their defaults say the same, and infinity has no other spelling in JSON."""
    if isinstance(value, dict):
        return {
            key: _without_null(entry) if isinstance(entry, _CONTAINERS) else entry
            for key, entry in value.items()
            if entry is not None
        }
    return [_without_null(entry) for entry in value] if isinstance(value, list) else value
