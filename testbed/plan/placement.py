"""Makes the nodes of a Plan, or of a user's program: names, ranks, parents and children, addresses, devices.

Every data centre has its workers and one local server; the central one also has the global servers and the scheduler.
With one tier (``paradigm: ps``) there are no local servers: workers push straight to the global ones; with none
(``allreduce``, ``gossip``) only workers and the scheduler. A central data centre without training workers gets
one that only initialises the model (GeoMX's master worker). Ranks count within a role, in data-centre order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from testbed.declaration import made_from
from testbed.errors import ScenarioError
from testbed.facilities import Facilities
from testbed.ids import node_name
from testbed.plan.model import NetworkPlan, NodePlan
from testbed.plan.stages import by_stage, hop_between
from testbed.scenario import Scenario
from testbed.scenario.pipeline import ground_of, pipeline_of
from testbed.scenario.topology.topology import DataCenter, Topology
from testbed.settings.job import ANY_GPU, Device, DeviceSection

_Changes = Any  # changes of a device: settings by name, or a section that has them; ``None``: no changes
NODE_PORT = 5000
HOSTS_PER_BLOCK = 250


def build_nodes(
    scenario: Scenario, topology: Topology, stages: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[NodePlan, ...]:
    """Return all nodes of a written-out topology.

    The order is by data centre, then workers, local server, global servers, replicas, scheduler. ``stages``: for a
    pipeline, by data centre, the stages that its workers compute; each stage has servers of its own.
    """
    _check_step_times(scenario, topology)
    sites = topology.data_centers
    tiers = scenario.paradigm.declared.tiers
    central = next(site for site in sites if site.central)
    numbers = range((central.global_servers or 1) if tiers else 0)
    tops = tuple(node_name(central.name, "global", number) for number in numbers)
    if tiers == 1:
        below = tuple(name for site in sites for name in _worker_names(site))
    else:
        below = tuple(node_name(site.name, "server", 0) for site in sites)
    nodes: list[NodePlan] = []
    ranks: Counter[str] = Counter()
    for index, site in enumerate(sites):
        found = _site_nodes(site, scenario, tops, below)
        for host, node in enumerate(by_stage(found, stages) if stages else found):
            rank = ranks[node.role]
            ranks[node.role] += 1
            nodes.append(addressed(replace(node, rank=rank), index, host, scenario.run.facilities))
    return tuple(nodes)


def stages_by_site(scenario: Scenario, network: NetworkPlan) -> dict[str, tuple[int, ...]]:
    """Return the stages of the workers of each data centre. Raise ``ScenarioError`` for an invalid placement."""
    pipeline = pipeline_of(scenario)
    assert pipeline is not None, "only a pipeline has stages"
    ground = replace(ground_of(scenario), distance=lambda a, b: hop_between(network, a, b, size_bits=1.0))
    placement = pipeline.placement.declared(pipeline.placement.options)
    placed: dict[str, tuple[int, ...]] = placement.place(ground)
    where = f"{scenario.place_of('paradigm', 'placement')}: paradigm.placement"
    for site, workers in ground.sites:
        if len(placed.get(site, ())) != workers:
            raise ScenarioError(f"{where}: gives stages to {len(placed.get(site, ()))} of {site}'s {workers} workers")
    every = [stage for stages in placed.values() for stage in stages]
    for stage in range(ground.stages):
        if every.count(stage) != ground.replicas:
            raise ScenarioError(
                f"{where}: gives stage {stage} to {every.count(stage)} workers; {len(every)} workers and "
                f"{ground.stages} stages make {ground.replicas} replicas of each"
            )
    return placed


def build_program_nodes(scenario: Scenario, topology: Topology) -> tuple[NodePlan, ...]:
    """Return one node for each process of a user's program. Ranks follow the order of the data centres."""
    assert scenario.workload is not None
    nodes: list[NodePlan] = []
    for index, site in enumerate(topology.data_centers):
        names = [node_name(site.name, "worker", number) for number in range(site.workers)]
        if scenario.workload.per == "host":
            names = [node_name(site.name, "host")] * bool(names)
        for host, name in enumerate(names):
            node = NodePlan(name=name, role="worker", data_center=site.name, rank=len(nodes))
            nodes.append(replace(addressed(node, index, host, scenario.run.facilities), port=0))
    return tuple(nodes)


def _worker_names(site: DataCenter) -> tuple[str, ...]:
    count = site.workers or int(site.central)
    return tuple(node_name(site.name, "worker", number) for number in range(count))


def _site_nodes(
    site: DataCenter, scenario: Scenario, tops: tuple[str, ...], below: tuple[str, ...]
) -> Iterator[NodePlan]:
    """Yield the nodes of one site, without ranks and addresses.

    tops   the global servers
    below  the nodes that push to them, in rank order: local servers, or with one tier all workers
    """
    device = scenario.device
    plan_of = partial(_device, scenario.run.facilities)
    tiers = scenario.paradigm.declared.tiers
    node = partial(NodePlan, data_center=site.name, rank=0)
    workers = _worker_names(site)
    server = node_name(site.name, "server", 0)
    # the changes by each row of a file of step times
    times = {name: {"step_time_s": seconds} for name, seconds in (device.step_times or {}).items()}
    of_site = (times.get(site.name), site.device)
    default = plan_of(device, *of_site)
    plain = _of_server(device, site.device, default.codec_speed)
    for number, name in enumerate(workers):
        changes = site.worker_devices.get(f"worker{number}")
        row = times.get(name)
        own = plan_of(device, *of_site, row, changes) if changes or row else default
        parents = (server,) if tiers == 2 else tops
        yield node(name=name, role="worker", parents=parents, trains=site.workers > 0, device=own)
    if tiers == 2:
        yield node(name=server, role="server", parents=tops, children=workers, device=plain)
    if site.central:
        for name in tops:
            yield node(name=name, role="global_server", children=below, device=plain)
        for number in range(scenario.recovery.replicas):
            name = node_name(site.name, "replica", number)
            yield node(name=name, role="replica", children=below, device=plain)
        yield node(name=node_name(site.name, "scheduler"), role="scheduler")


def _check_step_times(scenario: Scenario, topology: Topology) -> None:
    """Raise ``ScenarioError`` if a file of step times names something other than a worker or a data centre."""
    sites = topology.data_centers
    known = {site.name for site in sites} | {name for site in sites for name in _worker_names(site)}
    strangers = [name for name in scenario.device.step_times or () if name not in known]
    if strangers:
        where = f"{scenario.place_of('device', 'step_times')}: device.step_times"
        raise ScenarioError(f"{where}: no worker or data centre '{strangers[0]}' (write e.g. {sites[0].name}/worker0)")


def _device(facilities: Facilities, section: DeviceSection, *changes: _Changes) -> Device:
    """Return the device with the changes applied in order. The step time is divided by ``speed``."""
    device = _changed(section, *changes)
    pace = device.pace
    if pace == "auto":
        pace = "measured" if device.kind != "cpu" and not facilities.in_virtual_time else "paced"
    step_time_s = sum(map(sum, device.layers)) or device.step_time_s
    return made_from(Device, device, pace=pace, step_time_s=step_time_s / device.speed)


def _changed(device: DeviceSection, *changes: _Changes) -> DeviceSection:
    """Return the device with the changes applied in order. A changed step time drops the times of single layers."""
    for change in changes:
        values = change if isinstance(change, dict) else vars(change) if change is not None else {}
        found: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if "step_time_s" in found:
            found["layers"] = ()
        device = replace(device, **found)
    return device


def _of_server(section: DeviceSection, change: _Changes, codec_speed: float) -> Device:
    """Return the device on which a server of a data centre aggregates."""
    device = _changed(section, change)
    index = device.index if device.server_device == device.kind else ANY_GPU
    return Device(pace="paced", kind=device.server_device, index=index, share=device.share, codec_speed=codec_speed)


def addressed(node: NodePlan, site: int, host: int, facilities: Facilities) -> NodePlan:
    """Return the node with its address and port.

    Emulated nodes have 10.<site>.<block>.<host> and all the same port (10.<site>.0.254 is the gateway).
    On loopback the launcher picks free ports (0), so that two runs can run at the same time.
    """
    if facilities.shapes_links:
        block, number = divmod(host, HOSTS_PER_BLOCK)
        return replace(node, address=f"10.{site + 1}.{block}.{number + 1}", port=NODE_PORT)
    return replace(node, address="127.0.0.1") if not facilities.has_wan else node
