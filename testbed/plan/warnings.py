"""Warnings about settings that have no effect on the chosen back end, or another effect than they seem to have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.codec.options import CODECS
from testbed.costs import (
    COPY,
    ENCODE,
    MESSAGE,
    MESSAGE_BYTES_PER_S,
    OPERATIONS,
    SUM,
    measured_names,
    parts_of,
    reference_costs,
)
from testbed.declaration import other_than_default
from testbed.facilities import Facilities
from testbed.numbers import seconds, size
from testbed.plan.bounds import has_unknown_samples, model_bytes
from testbed.plan.model import (
    EMULATED_LAN_CEILING_BPS,
    EMULATED_LOWEST_RATE_BPS,
    LinkPlan,
    NetworkPlan,
    NodePlan,
    TrainingPlan,
)
from testbed.plan.shaping import FRAME_BYTES
from testbed.plan.silence import longest_outage
from testbed.policy.events import Contribution
from testbed.policy.gossip import ALGORITHMS
from testbed.policy.shard.slices import ELEMENT_BYTES
from testbed.scenario import Scenario
from testbed.scenario.rules.facts import outer_of
from testbed.settings.job import Device
from testbed.settings.run import Simulation
from testbed.suggest import nearest_or_all, suggestion
from testbed.training.options import DATASETS, MODELS
from testbed.training.options.declarations import NOTHING, UNKNOWN_MODEL_BYTES
from testbed.units import format_rate, format_size

_OF_WINDOWS = (
    "slow_start_after_idle",
    "unsent_limit_bytes",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "initial_window_packets",
)
_TLS_RECORD = "22 bytes to each record of up to 16 KiB"  # RFC 8446: header 5, type 1, tag 16


def warnings_for(
    scenario: Scenario,
    network: NetworkPlan,
    nodes: tuple[NodePlan, ...],
    training: TrainingPlan,
    simulation: Simulation,
) -> tuple[str, ...]:
    """Return one line each, in a fixed order."""
    facilities = scenario.run.facilities
    return (
        *_facilities(scenario, network, nodes, simulation),
        *_topology(scenario),
        *_links(facilities, network, simulation),
        *_lan(scenario, network),
        *_transport(scenario),
        *_costs(scenario, network),
        *_optimizer_time(scenario, nodes, training),
        *_detours(network),
        *_unknown_samples(training),
        *_servers(scenario),
        *_lan_rounds(scenario, nodes),
        *_momentum(scenario),
        *_outer(scenario),
        *_backups(scenario),
        *_precision(scenario, nodes),
        *_checkpoints(scenario),
    )


def _facilities(
    scenario: Scenario, network: NetworkPlan, nodes: tuple[NodePlan, ...], simulation: Simulation
) -> Iterator[str]:
    facilities = scenario.run.facilities
    if facilities.about_links and network.links:
        yield f"topology.links, topology.lan: {facilities.about_links}"
    if not facilities.has_processes:
        for key in other_than_default(scenario.transport, "mac", "shared_memory"):
            yield f"transport.{key}: has no effect on 'simulate', where there are no sockets"
        for key in other_than_default(scenario.transport, *_OF_WINDOWS) if simulation.network == "ideal" else ():
            yield f"transport.{key}: has no effect with 'simulation: {{network: ideal}}', where there are no sockets"
        if scenario.transport.tls:
            added = f"a round trip to each connection's start, {_TLS_RECORD}, and processor time"
            yield f"transport.tls: has no effect on 'simulate'; it would add {added}"
        if any(node.role == "worker" and node.device.pace == "measured" for node in nodes):
            yield "device.pace: 'measured' cannot be simulated; a step takes device.step_time"
    else:
        yield from _measured(nodes, facilities)


def _topology(scenario: Scenario) -> Iterator[str]:
    """Yield the changes that were made to the topology before it became links."""
    topology = scenario.topology
    if topology.scale != 1:
        yield (
            f"topology.scale: rates of WAN and LAN are divided by {topology.scale:g}, delays are not; "
            f"a model here stands for one of {topology.scale:g} times its bytes"
        )
    if topology.speed != 1:
        yield f"topology.speed: the times of all traces are divided by {topology.speed:g}"
    if topology.about is not None:
        yield from (f"topology: {topology.about.title}: {note}" for note in topology.about.repaired)


def _links(facilities: Facilities, network: NetworkPlan, simulation: Simulation) -> Iterator[str]:
    """Yield the settings and faults of links that the back end cannot produce."""
    by_packet = not facilities.has_processes and simulation.by_packet
    if facilities.shapes_links:
        fast = [site.name for site in network.sites if site.lan_rate_bps > EMULATED_LAN_CEILING_BPS]
        if fast:
            others = f" (and {len(fast) - 1} more)" if len(fast) > 1 else ""
            yield f"{fast[0]}{others}: its LAN is left unshaped, as it is faster than 2 Gbit/s"
    short = [link for link in network.links if link.queue_bytes < FRAME_BYTES] if facilities.links else []
    if short:
        queue = f"the queue of {format_size(short[0].queue_bytes)} is smaller than a frame of {FRAME_BYTES} bytes"
        yield from _of_links(short, f"{queue}: a packet that meets another one is lost; write a longer 'queue'")
    if facilities.shapes_links or by_packet:
        slow = list[LinkPlan]()
        for link in network.links:
            values = (link.rate_bps, *(link.rate_trace.values if link.rate_trace else ()))
            if any(0 < value < EMULATED_LOWEST_RATE_BPS for value in values):
                slow.append(link)
        yield from _of_links(slow, "rates below 64 kbit/s are emulated as 64 kbit/s")
    if not facilities.has_processes:
        losses = "packets are lost independently" if by_packet else "losses are a mean"
        for name in ("duplication", "jitter_s", "reordering"):
            having = [link for link in network.links if getattr(link, name)]
            yield from _of_links(having, f"{name.removesuffix('_s')} has no effect on 'simulate'")
        bursty = [link for link in network.links if link.loss_burst_packets > 1 or link.burst_trace]
        yield from _of_links(bursty, f"loss_burst has no effect on 'simulate', where {losses}")
    yield from _outages(facilities, by_packet, network)


def _lan(scenario: Scenario, network: NetworkPlan) -> Iterator[str]:
    """Yield a warning if the LAN has the default rate and is slower than a WAN link."""
    fastest = max(network.links, key=lambda link: link.rate_bps, default=None)
    slowest = min(network.sites, key=lambda site: site.lan_rate_bps)
    if scenario.run.facilities.is_unshaped or other_than_default(scenario.topology.lan, "rate_bps") or fastest is None:
        return
    if slowest.lan_rate_bps < fastest.rate_bps:
        yield (
            f"topology.lan: {format_rate(slowest.lan_rate_bps)} by default, slower than {fastest.name} with "
            f"{format_rate(fastest.rate_bps)}; where the LAN is faster, write 'lan: {{rate: 100 Gbit/s}}'"
        )


def _outages(facilities: Facilities, by_packet: bool, network: NetworkPlan) -> Iterator[str]:
    """Yield one warning for all outages: the time of the longest, and its effect."""
    spans = {link.name: longest_outage(link) for link in network.links}
    lengths_s = {name: end_s - begin_s for name, (begin_s, end_s) in spans.items()}
    down = sorted((link for link in network.links if lengths_s[link.name]), key=lambda link: -lengths_s[link.name])
    if not down or facilities.is_unshaped:
        return
    begin_s, end_s = spans[down[0].name]
    until = f"until {end_s:g} s" if math.isfinite(end_s) else "for good"
    if not facilities.has_processes and not by_packet:
        told = "simulated as a pause until TCP's next retransmission finds it up again; nothing on its way is lost"
    elif down[0].rate_trace is not None and 0 in down[0].rate_trace.values:
        told = f"an outage of its trace {down[0].rate_trace.source}".rstrip()
    else:  # the scenario says so itself
        return
    yield from _of_links(down, f"down from {begin_s:g} s {until}, {told}")


def _of_links(links: Sequence[LinkPlan], told: str) -> Iterator[str]:
    """Yield one warning for all these links; nothing if there are no links."""
    if links:
        others = f" (and {len(links) - 1} more)" if len(links) > 1 else ""
        yield f"link {links[0].name}{others}: {told}"


def _transport(scenario: Scenario) -> Iterator[str]:
    on = scenario.run.on
    unshaped = scenario.run.facilities.is_unshaped
    transport = scenario.transport
    if transport.parallel_streams > 1:
        whom = "measuring tools and bulk background traffic"
        yield f"transport.parallel_streams: affects only {whom}; training has one connection for each pair of nodes"
    if transport.initial_window_packets is not None and unshaped:
        yield f"transport.initial_window: has no effect on '{on}', where the testbed sets no routes"
    if scenario.background and unshaped:
        yield f"background: has no effect on '{on}', whose links are not emulated"


def _costs(scenario: Scenario, network: NetworkPlan) -> Iterator[str]:
    """Yield warnings about misspelt and missing rows of the scenario's table of costs, and about fast LANs.

    Other unknown rows are accepted, as they may belong to a codec of another scenario.
    """
    tiers = (scenario.codec.tier1, scenario.codec.tier2)
    own = [name for each in tiers for name in (each.kind, getattr(each.declared, "cost_name", ""))]
    names = measured_names() | {*CODECS, *own, scenario.optimizer.kind, f"{scenario.optimizer.kind} with momentum"}
    for row in scenario.simulation.costs:
        name, operation = parts_of(row)
        if row in (SUM, COPY, MESSAGE) or (name in names and operation in OPERATIONS):
            continue
        near = suggestion(name, names) if operation in OPERATIONS else nearest_or_all(operation, OPERATIONS)
        if near:
            yield f"simulation.costs: row '{row}' has no effect ({near})"
    if scenario.simulation.costs:
        yield from _unstated_costs(scenario)
    most_bps = 8 * MESSAGE_BYTES_PER_S
    fast = [site for site in network.sites if site.lan_rate_bps > most_bps]
    if fast and scenario.run.facilities.in_virtual_time and MESSAGE not in scenario.simulation.costs:
        rate = format_rate(fast[0].lan_rate_bps)
        yield (
            f"topology: the LAN of {fast[0].name} has {rate}, but a node takes {format_rate(most_bps)}, which is what "
            f"a core reads and authenticates; for other nodes, 'simulation.costs' with a row '{MESSAGE}' says "
            "what a message takes at its receiver"
        )


def _optimizer_time(scenario: Scenario, nodes: tuple[NodePlan, ...], training: TrainingPlan) -> Iterator[str]:
    """Yield a warning if an optimizer step, at the speed of one core, takes longer than a training step.

    It is checked only for large declared models, for which ``model_bytes`` is the exact size and not a bound.
    """
    trained = [node.device.step_time_s for node in nodes if node.trains]
    row = reference_costs().get(f"{scenario.optimizer.kind} step")
    if scenario.simulation.costs or scenario.is_program or not scenario.run.facilities.in_virtual_time:
        return
    if row is None or not trained or MODELS[training.model.kind].takes != NOTHING:
        return
    size_bytes = model_bytes(training.model, training.data)
    takes_s = row.seconds(size_bytes // ELEMENT_BYTES, 0)
    if size_bytes > UNKNOWN_MODEL_BYTES and takes_s > max(trained):
        yield (
            f"simulation.costs: a step of '{scenario.optimizer.kind}' takes {seconds(takes_s)} beside a training step "
            f"of {seconds(max(trained))}, because steps, codecs and sums are timed as on a processor core; for GPUs, "
            "name a table such as scenarios/large/h100.csv: 'simulation: {costs: {file: FILE.csv}}'"
        )


def _unknown_samples(training: TrainingPlan) -> Iterator[str]:
    """Yield a warning if samples could not be loaded, with the size that is assumed for the model."""
    if has_unknown_samples(training.data) and MODELS[training.model.kind].takes == DATASETS[training.data.kind].gives:
        assumed = size(model_bytes(training.model, training.data))
        data = Path(training.data.kind).name  # of a class in a file without the folders
        model = Path(training.model.kind).name
        yield (
            f"training.data: the size of the samples of '{data}' is unknown, as they could not be loaded here; "
            f"deadlines and predicted packets are for a model of {assumed}, the most that '{model}' is expected to "
            "have; let this machine have the data, or declare 'sample_bound' in the class (docs/axes/data.md)"
        )


def _unstated_costs(scenario: Scenario) -> Iterator[str]:
    """Yield the codecs and optimizers in use that have no row in the scenario's own table of costs."""
    told = {parts_of(row)[0] for row in scenario.simulation.costs}
    optimizers = [(scenario.optimizer.kind, scenario.optimizer.options)]
    if outer := outer_of(scenario):
        optimizers.append(outer)
    used = [kind + (" with momentum" if getattr(options, "momentum", 0.0) else "") for kind, options in optimizers]
    codecs = {tier.kind for tier in (scenario.codec.tier1, scenario.codec.tier2) if not tier.declared.exact}
    for name in sorted({*used, *codecs} - told):
        example = f"{name} step" if name in used else f"{name} {ENCODE}"
        yield (
            f"simulation.costs: has no row for '{name}' (such as '{example}'): its work takes as long as measured on "
            "a processor core"
        )


def _measured(nodes: tuple[NodePlan, ...], facilities: Facilities) -> Iterator[str]:
    devices = [node.device for node in nodes if node.role == "worker" and node.device.pace == "measured"]
    plain = Device()
    for key in ("variation",) if facilities.in_virtual_time else ("variation", "slowdown", "speed"):
        if any(getattr(device, key) != getattr(plain, key) for device in devices):
            what = "device.slowdown, and faults 'slow': have" if key == "slowdown" else f"device.{key}: has"
            yield f"{what} no effect where device.pace is 'measured'; a step takes as long as it computes"


def _servers(scenario: Scenario) -> Iterator[str]:
    """Yield server settings without effect, if the paradigm has no servers.

    They are not refused, so that one network can serve to compare paradigms.
    """
    if not scenario.is_program and not scenario.paradigm.declared.tiers:
        for site in scenario.topology.data_centers:
            if (site.global_servers or 1) > 1:
                place = f"topology.data_centers[{site.name}].global_servers"
                yield f"{place}: has no effect with 'paradigm: {scenario.paradigm.kind}', which has no servers"


def _lan_rounds(scenario: Scenario, nodes: tuple[NodePlan, ...]) -> Iterator[str]:
    """Yield a warning if the last rounds of a run stay inside data centres.

    A run with a target accuracy gets none, as it is expected to end before them.
    """
    sync = scenario.sync.tier1
    rounds = scenario.training.rounds
    each = sync.declared.lan_rounds(sync.options)
    training = {node.data_center for node in nodes if node.role == "worker" and node.trains}
    if scenario.is_program or len(training) < 2 or rounds % each == 0:
        return
    which = f"sync: '{sync.kind}' crosses the WAN in one of {each} rounds"
    if rounds < each:
        yield f"{which}, but training.rounds is {rounds}: data centres exchange nothing, and no byte crosses the WAN"
    elif scenario.training.target is None:
        yield f"{which}: the last {rounds % each} of {rounds} stay inside data centres, whose models differ at the end"


def _momentum(scenario: Scenario) -> Iterator[str]:
    """Yield codecs and algorithms that send each element only now and then, if the optimizer has a momentum.

    ``docs/measurements/techniques.md`` shows the effect of a momentum on such elements.
    """
    outer = outer_of(scenario)
    kind = scenario.optimizer.kind
    options = scenario.optimizer.options
    place = "optimizer"
    if outer is not None and scenario.sync.tier1.declared.contribution is not Contribution.GRADIENT:
        kind, options = outer
        place = "sync" if scenario.outer_optimizer is None else "outer_optimizer"
    elif scenario.sync.tier1.declared.contribution is not Contribution.GRADIENT or scenario.workload is not None:
        return  # a script brings its own optimizer
    option = next((name for name in ("momentum", "beta1") if getattr(options, name, 0.0) > 0), "")
    for sender, corrects in _sparse_senders(scenario) if option else ():
        also = " and in the codec" if corrects and outer is None else ""  # changes of models are never corrected
        yield (
            f"{sender} sends an element only now and then, but the {option} of '{kind}' repeats it in later rounds; "
            f"such runs have missed their target or diverged: write 0 for the momentum in '{place}'{also}"
        )


def _outer(scenario: Scenario) -> Iterator[str]:
    """Yield a warning if ``outer_optimizer`` replaces the outer step that the options of ``sync`` change."""
    sync = scenario.sync.tier1
    declared = sync.declared.outer_optimizer(sync.options)
    if scenario.outer_optimizer is None or declared is None:
        return
    if declared != sync.declared.outer_optimizer(type(sync.options)()):
        yield f"outer_optimizer: '{scenario.outer_optimizer.kind}' takes the place of the outer step that 'sync' sets"


def _sparse_senders(scenario: Scenario) -> Iterator[tuple[str, bool]]:
    """Yield each codec or algorithm that sends only some elements (place and name), and whether it has a momentum."""
    paradigm = scenario.paradigm
    codecs = dict(scenario.codec)
    if codecs["tier1"] == codecs["tier2"] and paradigm.declared.tiers < 2:  # written as one value: report it once
        del codecs["tier1"]
    for tier, codec in codecs.items():
        if codec.declared.sends_part(codec.options):
            yield f"codec.{tier}: '{codec.kind}'", getattr(codec.options, "momentum", 0.0) > 0
    if paradigm.declared.sparse(paradigm.options):
        yield f"paradigm.algorithm: '{paradigm.options.algorithm}'", False


def _backups(scenario: Scenario) -> Iterator[str]:
    """Yield a warning if the optimizer compensates for delays, but no gradient is delayed."""
    waits = all(tier.declared.waits for tier in (scenario.sync.tier1, scenario.sync.tier2))
    if scenario.is_program or not scenario.optimizer.declared.needs_backups:
        return
    if waits or not scenario.paradigm.declared.tiers:
        yield (
            f"optimizer: '{scenario.optimizer.kind}' compensates for delays, but rounds that wait for all have none: "
            "it makes the steps of 'sgd'; write 'sync: mixedsync', 'tap' or 'ssp'"
        )


def _precision(scenario: Scenario, nodes: tuple[NodePlan, ...]) -> Iterator[str]:
    """Yield a warning about a precision that has no effect without a GPU."""
    if scenario.training.precision == "tf32" and all(node.device.kind == "cpu" for node in nodes):
        yield "training.precision: 'tf32' has no effect on a processor; matrices are multiplied in float32"


def _checkpoints(scenario: Scenario) -> Iterator[str]:
    """Yield warnings if a run ends before its first checkpoint, or if checkpoints change an asynchronous run.

    The first check leaves out workloads, as a script decides itself how many rounds it trains.
    """
    every = scenario.checkpoint.every
    rounds = scenario.training.rounds
    if every > rounds and scenario.workload is None:
        yield f"checkpoint.every: {every}, but training.rounds is {rounds}: no checkpoint is written"
    late = [tier.kind for tier in (scenario.sync.tier1, scenario.sync.tier2) if not tier.declared.waits]
    if not scenario.paradigm.declared.tiers:
        gossip = getattr(scenario.paradigm.options, "algorithm", "")
        late = [gossip] if gossip in ALGORITHMS and ALGORITHMS[gossip].pairwise else []
    if 0 < every < rounds and late:
        yield (
            f"checkpoint.every: with '{late[0]}' workers wait for each other at every checkpoint, but nowhere else, "
            "so checkpoints change what each contributes"
        )


def _detours(network: NetworkPlan) -> Iterator[str]:
    """Yield one warning for all direct links between two sites that are not on the route between these sites."""
    routes = {link.name: network.routes.get(link.name, (link.name,)) for link in network.links}
    around = [link for link in network.links if routes[link.name] != (link.name,)]
    if around:
        way = " ".join(routes[around[0].name])
        cure = "where delays were measured between each two sites, write 'topology: {routing: hops}' to use these links"
        yield from _of_links(around, f"traffic goes {way}, where the delay is less; {cure}")
