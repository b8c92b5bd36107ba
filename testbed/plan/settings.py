"""Settings of a Plan that depend on several settings of the scenario. All others are copied from the scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from testbed.declaration import made_from
from testbed.errors import ScenarioError
from testbed.ids import link_name
from testbed.job_trace.reading import files_of
from testbed.plan import model
from testbed.policy.collective.options import INSIDE, NCCL, inside_of
from testbed.policy.events import Contribution
from testbed.scenario import Scenario
from testbed.scenario.pipeline import pipeline_of as pipeline_options
from testbed.scenario.pipeline import stages_of
from testbed.scenario.reading.axes import Technique
from testbed.scenario.rules.facts import is_scripted, optimizer_place, pushed, updates_on_workers, without_servers
from testbed.scenario.topology.topology import Topology
from testbed.settings.job import Choice, Program, TracedJob
from testbed.settings.run import Background, Cluster, Exact, Machines, Transport
from testbed.suggest import nearest_or_all

# memory of an exact run: for PyTorch, which is loaded once, and for each node's own pages
_GUEST_BYTES = 2 << 30
_NODE_BYTES = 96 << 20


def transport_of(scenario: Scenario) -> Transport:
    return replace(scenario.transport, best_effort_channels=scenario.order.declared.channels(scenario.order.options))


def training_of(scenario: Scenario) -> model.TrainingPlan:
    values = {field.name: getattr(scenario.training, field.name) for field in fields(scenario.training)}
    choices = {name: _choice(value) for name, value in values.items() if isinstance(value, Technique)}
    return model.TrainingPlan(**(values | choices))


def technique_of(scenario: Scenario) -> model.TechniquePlan:
    """Return the techniques. With one tier, workers use the synchronisation algorithm of tier 2 (the WAN)."""
    sync = scenario.sync
    codec = scenario.codec
    overlay = scenario.overlay
    outer = scenario.outer_optimizer
    aggregation = scenario.aggregation
    return model.TechniquePlan(
        paradigm=_choice(scenario.paradigm),
        sync_tier1=_choice(sync.tier2 if scenario.paradigm.declared.tiers == 1 else sync.tier1),
        sync_tier2=_choice(sync.tier2),
        optimizer=_optimizer(scenario),
        codec_tier1=_choice(codec.tier1),
        codec_tier2=_choice(codec.tier2),
        order=_choice(scenario.order),
        overlay_tier1=_choice(overlay.tier1),
        overlay_tier2=_choice(overlay.tier2),
        shard=_choice(scenario.shard),
        outer_optimizer=_choice(outer) if outer else Choice(kind=model.DECLARED),
        aggregation_tier1=_choice(aggregation.tier1),
        aggregation_tier2=_choice(aggregation.tier2),
    )


def summed_gradients(scenario: Scenario, nodes: Sequence[model.NodePlan]) -> int:
    """Return the number of workers whose gradients one optimizer step sums; 1 if a gradient's length has no effect."""
    by_site = Counter(node.data_center for node in nodes if node.role == "worker" and node.trains)
    gradients = pushed(scenario) is Contribution.GRADIENT and not is_scripted(scenario)
    if not gradients or updates_on_workers(scenario) or scenario.optimizer.declared.scale_free or not by_site:
        return 1
    if without_servers(scenario):
        return by_site.total() if scenario.paradigm.declared.global_sum else 1
    if not scenario.sync.tier1.declared.waits:
        return 1
    return by_site.total() if scenario.sync.tier2.declared.waits else max(by_site.values())


def _optimizer(scenario: Scenario) -> Choice:
    """Return the optimizer with the place where it runs."""
    choice = _choice(scenario.optimizer)
    place = {"at": optimizer_place(scenario)} if "at" in choice.options else {}
    return replace(choice, options={**choice.options, **place})


def exact_of(scenario: Scenario, nodes: Sequence[model.NodePlan]) -> Exact | None:
    """Return the kernel of an exact run; ``None`` for other runs. By default its memory fits PyTorch and all nodes."""
    if scenario.run.on != "exact":
        return None
    memory_bytes = scenario.exact.memory_bytes or _GUEST_BYTES + len(nodes) * _NODE_BYTES
    return replace(scenario.exact, memory_bytes=memory_bytes)


def cluster_of(scenario: Scenario, nodes: Sequence[model.NodePlan]) -> Cluster | None:
    """Return the machines of a run on a cluster; ``None`` for other runs.

    Raise ``ScenarioError`` if a data centre has more nodes than ports, or if a named data centre does not exist.
    """
    sizes = Counter(node.data_center for node in nodes)
    written = scenario.cluster.data_centers
    for name in written:
        if name not in sizes:  # only possible with generated topologies: rules check the names of written data centres
            where = f"{scenario.place_of('cluster', 'data_centers', name)}: cluster.data_centers.{name}"
            raise ScenarioError(f"{where}: there is no data centre '{name}' ({nearest_or_all(name, sizes, 12)})")
    if scenario.run.on != "cluster":
        return None
    machines = {}
    for name, count in sizes.items():
        wanted = written.get(name, Machines())
        if wanted.ports is not None and wanted.ports[1] - wanted.ports[0] + 1 < count:
            first = wanted.ports[0]
            where = f"{scenario.place_of('cluster', 'data_centers', name)}: cluster.data_centers.{name}.ports"
            raise ScenarioError(f"{where}: {count} nodes need as many ports; write '{first}-{first + count - 1}'")
        machines[name] = replace(wanted, label=wanted.label or f"dc={name}")
    return replace(scenario.cluster, data_centers=machines)


def program_of(scenario: Scenario, topology: Topology) -> Program | None:
    """Return the program that the scenario's workload names; ``None`` unless it is a command.

    Raise ``ScenarioError`` if the run would end with the other processes (``ends: others``), but there is only one.
    """
    workload = scenario.workload
    if workload is None or not workload.is_program:
        return None
    counts = [site.workers for site in topology.data_centers if site.workers]
    workers = tuple(counts if workload.per == "host" else [1] * sum(counts))
    if workload.ends == "others" and len(workers) == 1:
        raise ScenarioError(
            "workload.ends: only the first process is started, because the topology has one "
            f"{'data centre with workers' if workload.per == 'host' else 'worker'}; write 'ends: all'"
        )
    return made_from(Program, workload, workers=workers)


def traced_of(scenario: Scenario, nodes: Sequence[model.NodePlan]) -> TracedJob | None:
    """Return the execution trace to play, with the worker of each rank; ``None`` unless the workload names one.

    Raise ``ScenarioError`` if the numbers of workers and ranks differ, in total or in a data centre of the placement.
    """
    workload = scenario.workload
    if workload is None or not workload.trace:
        return None
    workers: dict[str, list[str]] = {}
    for node in nodes:
        if node.role == "worker" and node.trains:
            workers.setdefault(node.data_center, []).append(node.name)
    count = len(files_of(Path(workload.trace)))
    every = [name for here in workers.values() for name in here]
    where = f"{scenario.place_of('workload', 'trace')}: workload.trace"
    if len(every) != count:
        raise ScenarioError(
            f"{where}: has {count} ranks, but the topology has {len(every)} workers; give it {count} workers"
        )
    if not workload.placement:
        return made_from(TracedJob, workload, ranks=tuple(every))
    by_rank: dict[int, str] = {}
    where = f"{scenario.place_of('workload', 'placement')}: workload.placement"
    known = {node.data_center for node in nodes}
    for site in workload.placement:
        if site not in known:
            raise ScenarioError(
                f"{where}: there is no data centre '{site}' ({nearest_or_all(site, sorted(known), 12)})"
            )
    for site in {**workers, **workload.placement}:
        here = workers.get(site, [])
        ranks = workload.placement.get(site, ())
        if len(here) != len(ranks):
            raise ScenarioError(f"{where}: '{site}' has {len(here)} workers for {len(ranks)} ranks; write one for each")
        by_rank.update(zip(ranks, here, strict=True))
    return made_from(TracedJob, workload, ranks=tuple(by_rank[rank] for rank in range(count)))


def background_of(scenario: Scenario, network: model.NetworkPlan) -> tuple[Background, ...]:
    """Return the background traffic; each entry has its own seed. Raise ``ScenarioError`` if no path joins its ends."""
    simulated = not scenario.run.facilities.has_processes
    found = []
    for index, traffic in enumerate(scenario.background):
        where = f"{scenario.place_of('background', index)}: background[{index}]"
        # with very many sites, a Plan omits most routes; all sites are connected, and the virtual world finds the path
        ends = {traffic.source, traffic.target} <= {site.name for site in network.sites}
        if not (ends if simulated else link_name(traffic.source, traffic.target) in network.routes):
            raise ScenarioError(f"{where}: the network has no path from '{traffic.source}' to '{traffic.target}'")
        if traffic.kind == "tcp" and simulated:
            cure = "use constant or on_off traffic, or 'on: emulate'"
            raise ScenarioError(f"{where}: tcp traffic cannot be simulated ({cure})")
        streams = traffic.streams or scenario.transport.parallel_streams
        found.append(replace(traffic, streams=streams, seed=f"{scenario.seed}/background/{index}"))
    return tuple(found)


def check_gpu_links(scenario: Scenario, network: model.NetworkPlan, nodes: Sequence[model.NodePlan]) -> None:
    """Raise ``ScenarioError`` if workers would sum over the GPUs' own links, and so bypass an emulated link."""
    if not scenario.run.facilities.shapes_links:
        return
    options = asdict(scenario.paradigm.options)
    workers = Counter(node.data_center for node in nodes if node.role == "worker" and node.trains)
    shaped = [site.name for site in network.sites if workers[site.name] > 1 and not site.is_unshaped]
    inside = inside_of(options)
    if inside is not None and inside.on_gpu and shaped:
        others = " or ".join(f"'{name}'" for name, each in INSIDE.items() if not each.on_gpu)
        option = "inside"
        bypassed = f"the emulated LAN of {shaped[0]}"
        cure = f"write {others}, or leave that LAN unshaped: 'lan: {{rate: 10 Gbit/s, delay: 0 ms}}'"
    elif options.get("backend") == NCCL and len(workers) > 1:
        option = "backend"
        bypassed = "the emulated WAN"
        cure = "write 'gloo', or 'paradigm: {kind: hips, inside: nccl}', whose sums stay in a data centre"
    else:
        return
    where = f"{scenario.place_of('paradigm', option)}: paradigm.{option}"
    raise ScenarioError(f"{where}: the GPUs of this machine sum over their own links, which bypass {bypassed} ({cure})")


def pipeline_of(scenario: Scenario) -> model.PipelinePlan | None:
    """Return how workers compute steps together, before staging; ``None`` without a pipeline."""
    pipeline = pipeline_options(scenario)
    if pipeline is None:
        return None
    return model.PipelinePlan(
        stages=stages_of(scenario),
        micro_batches=pipeline.micro_batches,
        schedule=_choice(pipeline.schedule),
        cuts=tuple(map(int, pipeline.cuts.split())),
        activations=_choice(pipeline.activations),
        activation_gradients=_choice(pipeline.activation_gradients),
        recompute=pipeline.recompute,
        error_feedback=pipeline.error_feedback,
    )


def _choice(technique: Technique) -> Choice:
    return Choice(kind=technique.kind, options=asdict(technique.options))
