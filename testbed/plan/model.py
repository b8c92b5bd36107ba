"""The Plan: everything that a back end needs to know, fully expanded, as plain frozen data.

A person writes a Scenario; a machine executes a Plan. Back ends and analysis read only the Plan. It is written as JSON
(``to_json``, ``from_json``), and is the same for the same scenario and seed, byte for byte.
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

# The limits of emulation: below the lowest rate, one frame would block a link for seconds, even if the rate rises
# meanwhile; above the highest, two cores cannot move a LAN's packets through a queue.
EMULATED_LOWEST_RATE_BPS = 64e3
EMULATED_LAN_CEILING_BPS = 2e9
OFFLOADED_LAN_BPS = 500e6  # from this rate on, nodes of an emulated LAN hand frames of up to 64 KB to their ports
# Shorter delays are left to an emulated LAN's cables and switch, which take some 0.05 ms (8 µs in virtual time).
EMULATED_LAN_DELAY_FLOOR_S = 0.5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One process. ``rank`` counts within the role over the whole run, in data-centre order.

    role        ``worker`` | ``server`` (tier 1, one LAN) | ``global_server`` (tier 2) | ``replica`` | ``scheduler``
    parents     the servers that this node pushes to (several: keys are sharded over them); empty for the top tier. If
                the workers of a data centre sum among themselves, the first of them pushes for all
    children    the nodes that push to this one, in rank order
    trains      whether a worker contributes gradients (the master worker of a central party may not)
    stage       the stage of a pipeline that a worker computes, or whose parameters a server has; ``None``: no pipeline
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
    everything. ``burst_trace``, ``corruption_trace``, ``duplication_trace`` and ``reordering_trace`` hold the values of
    these fields as faults change them.
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
        """Share of packets that do not arrive, or arrive corrupted."""
        return 1 - (1 - self.loss) * (1 - self.corruption)


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """A data centre: its gateway is a vertex of the WAN; its nodes are connected to one LAN switch."""

    name: str
    index: int
    lan_rate_bps: float
    lan_delay_s: float
    central: bool = False
    subnet: str | None = None

    @property
    def emulated_lan_delay_s(self) -> float:
        """The delay that emulation adds to that of its own cables and switch."""
        return self.lan_delay_s if self.lan_delay_s >= EMULATED_LAN_DELAY_FLOOR_S else 0.0

    @property
    def is_unshaped(self) -> bool:
        """Whether emulation does not shape the LAN: its rate is above what emulation can make, and its delay is 0."""
        return self.lan_rate_bps > EMULATED_LAN_CEILING_BPS and self.lan_delay_s == 0


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """Sites, other routers, directed links, and routes: the links of the path for ordered pairs of sites.

    ``routing``: the measure of the shortest path (``topologies.graph``). In simulations of very many sites, ``routes``
    has only the pairs with the central site, and other paths are computed by this measure on request.
    """

    sites: tuple[SitePlan, ...]
    routers: tuple[str, ...]
    links: tuple[LinkPlan, ...]
    routes: dict[str, tuple[str, ...]]  # "virginia>tokyo": ("virginia>core", "core>tokyo")
    routing: str = "delay"

    @cached_property
    def _paths(self) -> dict[str, Paths]:
        """The paths from sites without routes, as far as they have been requested."""
        return {}

    def between(self, source: str, target: str) -> tuple[str, ...]:
        """Return the names of the links from one site to another. Raise ``ScenarioError`` if there is no path."""
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
              ``reorder``. Faults of links, and ``slow``, are also written into the links' traces and the nodes'
              slowdowns, from which back ends take them
    targets   names of nodes, or of directed links
    at_s      ``None``: when any worker has finished ``round`` (``nan``, ``disk_full``: in that very round; ``attack``:
              from it on; ``leave``: when it has finished that round itself)
    for_s     how long it lasts; infinite: for good
    value     by kind: factor, rate in bit/s, share of packets, delay in s, number of rounds (``disk_full``) or strength
    burst     ``loss``: mean length of a burst of losses, in packets; 0: the link's own
    attack    ``attack``: how the worker changes its pushes, from ``round`` on
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
    """One technique per axis. ``tier1``: worker to local server (LAN); ``tier2``: local to global server (WAN)."""

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
    outer_optimizer: Choice = field(default_factory=lambda: Choice(kind=DECLARED))  # default: as ``sync`` declares
    aggregation_tier1: Choice = Choice(kind="mean")  # noqa: RUF009 - a frozen value, which may be shared
    aggregation_tier2: Choice = Choice(kind="mean")  # noqa: RUF009 - a frozen value, which may be shared


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """How the workers of a replica compute each step together.

    ``TechniquePlan.paradigm`` says how the replicas of one stage exchange gradients.

    cuts              the numbers of the first segments of all parts but the first
    tasks             by stage, the passes that it computes, in the order of the schedule. F0 is the forward pass of
                      micro-batch 0, B0 its backward pass, W0 its gradients of weights; F0.1 is for the second chunk
    activation_bytes  for each part but the last: the largest payload of a micro-batch's activations to the next part
    gradient_bytes    for each part but the last: the largest payload of their gradients, which come back
    """

    stages: int
    micro_batches: int
    schedule: Choice
    cuts: tuple[int, ...]
    activations: Choice
    activation_gradients: Choice
    recompute: bool = False
    error_feedback: bool = False
    tasks: tuple[str, ...] = ()  # this and the next fields are empty in Plans of an earlier release
    activation_bytes: tuple[int, ...] = ()
    gradient_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """See the module's docstring. Properties derived from the nodes are cached, as thousands of nodes use them.

    summed_gradients  number of workers whose gradients one optimizer step sums; 1 if a gradient's length has no effect.
                      With equal learning rates, runs with different numbers make steps of different lengths
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
        """Whether agents on the machines of a cluster start the nodes."""
        return self.cluster is not None

    def node(self, name: str) -> NodePlan:
        """Return the node of that name. Raise ``KeyError`` if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, NodePlan]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _by_role(self) -> Mapping[str, tuple[NodePlan, ...]]:
        roles = dict.fromkeys(node.role for node in self.nodes)
        return {role: tuple(node for node in self.nodes if node.role == role) for role in roles}

    def with_role(self, role: str) -> tuple[NodePlan, ...]:
        """Return all nodes of one role, in rank order."""
        return self._by_role.get(role, ())

    @property
    def title(self) -> str:
        """The run's name and its back end, for messages."""
        return f"{self.name} on {self.back_end}"

    @property
    def facilities(self) -> Facilities:
        """The facilities of the run's back end."""
        return BACK_ENDS[self.back_end]

    def simulated(self, simulation: Simulation) -> Plan:
        """Return the Plan of the same run on the back end ``simulate``, with these settings."""
        return replace(self, back_end="simulate", simulation=simulation)

    @property
    def is_emulated(self) -> bool:
        """Whether the nodes are processes behind emulated links."""
        return self.back_end == "emulate"

    @property
    def is_exact(self) -> bool:
        """Whether the run is emulated in a kernel of its own, in virtual time."""
        return self.back_end == "exact"

    @cached_property
    def has_wan(self) -> bool:
        """Whether messages between data centres cross the links of the Plan, which they do not on loopback."""
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
        """Names of the nodes that join later.

        These are the targets of faults ``join``, all workers of a server that joins, and servers all of whose workers
        join.
        """
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
        """The number of training workers that take part from the start, without those that join later."""
        return len({worker.name for worker in self.training_workers}.difference(self.late_comers))

    @cached_property
    def contributing(self) -> frozenset[str]:
        """Names of the training workers, and of the servers that they push to."""
        parents = {parent for worker in self.training_workers for parent in worker.parents}
        return frozenset(parents.union(worker.name for worker in self.training_workers))

    def site(self, name: str) -> SitePlan:
        """Return the data centre of that name. Raise ``KeyError`` if there is none."""
        for site in self.network.sites:
            if site.name == name:
                return site
        raise KeyError(name)


def monitor_of(plan: Plan) -> str:
    """Return the name of the node to which all others keep a heartbeat connection, and which ends last."""
    schedulers = plan.with_role("scheduler")
    return (schedulers or plan.nodes)[0].name


def resumes_clock(plan: Plan) -> bool:
    """Return whether a run that resumes from another run's checkpoint continues its clock, as simulations do."""
    return not plan.facilities.has_processes


def job_sha256(plan: Plan) -> str:
    """Return the hash of everything that must be equal for one run to resume another.

    The back end, the pace and the length of the runs may differ.
    """
    training = plan.training
    nodes = [(node.name, node.role, node.parents, node.trains) for node in plan.nodes]
    job = (training.model, training.data, training.split, training.batch_size, training.compute)
    content = msgspec.json.encode(msgspec.to_builtins((plan.seed, plan.technique, nodes, job)), order="sorted")
    return hashlib.sha256(content).hexdigest()


def computes_in_real_time(plan: Plan) -> bool:
    """Return whether the run's clock goes on while a node computes."""
    return plan.facilities.has_processes


def to_json(plan: Plan) -> bytes:
    """Return the Plan as indented JSON. Infinity is written as ``null``."""
    return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(plan)), indent=2)


def from_json(text: bytes) -> Plan:
    """Inverse of ``to_json``. Raise ``msgspec.ValidationError`` if the text is not a Plan."""
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except msgspec.ValidationError:  # ``null`` may be infinity
        plan = msgspec.convert(_without_null(msgspec.json.decode(text)), Plan)
    # copy by ``replace``: msgspec does not set fields that have defaults, and ``to_json`` would leave them out
    return replace(plan)


def completed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a Plan's JSON, completed by defaults for keys that an earlier release did not have.

    Raise ``msgspec.ValidationError`` if it is not a Plan.
    """
    plan = replace(msgspec.convert(_without_null(content), Plan))  # a copy, as msgspec does not set defaults
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(plan)))
    return found


_CONTAINERS = (dict, list)  # of JSON


def _without_null(value: Any) -> Any:
    """Return the value without keys that hold ``null``, so that they get their defaults. JSON has no infinity."""
    if isinstance(value, dict):
        return {
            key: _without_null(entry) if isinstance(entry, _CONTAINERS) else entry
            for key, entry in value.items()
            if entry is not None
        }
    return [_without_null(entry) for entry in value] if isinstance(value, list) else value
