"""Settings of a Plan that are those of the scenario, in the Plan's names and units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from testbed.errors import ScenarioError
from testbed.plan.model import (
    Choice,
    ClusterPlan,
    ExactPlan,
    HostPlan,
    MachinesPlan,
    NodePlan,
    RecoveryPlan,
    SimulationPlan,
    TechniquePlan,
    TrainingPlan,
    TransportPlan,
)
from testbed.scenario import Scenario
from testbed.scenario.reading.axes import Technique
from testbed.scenario.reading.section import Section
from testbed.scenario.reading.suggest import nearest_or_all
from testbed.scenario.sections.cluster import ClusterSite

T = TypeVar("T")

_GUEST_BYTES, _NODE_BYTES = 2 << 30, 96 << 20  # of an exact run: PyTorch, loaded once, and the pages of a node


def _same(made: type[T], section: Section, **others: Any) -> T:
    """Return a part of the Plan with what ``section`` calls by the same name, and ``others``."""
    names = {field.name for field in fields(made)} & set(type(section).model_fields)  # type: ignore[arg-type]
    return made(**{name: getattr(section, name) for name in names}, **others)


def transport_of(scenario: Scenario) -> TransportPlan:
    transport = scenario.transport
    return _same(
        TransportPlan, transport, unsent_limit_bytes=transport.unsent_limit, send_buffer_bytes=transport.send_buffer,
        receive_buffer_bytes=transport.receive_buffer, initial_window_packets=transport.initial_window,
        best_effort_channels=scenario.order.declared.channels(scenario.order.options),
    )  # fmt: skip


def training_of(scenario: Scenario) -> TrainingPlan:
    choices = {key: _choice(value) for key, value in scenario.training if isinstance(value, Technique)}
    return _same(TrainingPlan, scenario.training.model_copy(update=choices), batch_size=scenario.training.batch)


def technique_of(scenario: Scenario) -> TechniquePlan:
    """Return the techniques. With one tier, workers face the synchronisation algorithm of the WAN."""
    sync, codec, overlay = scenario.sync, scenario.codec, scenario.overlay
    return TechniquePlan(
        paradigm=_choice(scenario.paradigm),
        sync_tier1=_choice(sync.tier2 if scenario.paradigm.declared.tiers == 1 else sync.tier1),
        sync_tier2=_choice(sync.tier2), optimizer=_choice(scenario.optimizer),
        codec_tier1=_choice(codec.tier1), codec_tier2=_choice(codec.tier2), order=_choice(scenario.order),
        overlay_tier1=_choice(overlay.tier1), overlay_tier2=_choice(overlay.tier2), shard=_choice(scenario.shard),
    )  # fmt: skip


def recovery_of(scenario: Scenario) -> RecoveryPlan:
    return _same(RecoveryPlan, scenario.recovery, restart_delay_s=scenario.recovery.delay)


def simulation_of(scenario: Scenario) -> SimulationPlan:
    host = scenario.simulation.host
    planned = host and HostPlan(
        cores=host.cores, message_s=host.message, byte_s=8 / host.stream, step_s=host.step, memory_s=8 / host.memory,
        packet_s=host.packet,
    )  # fmt: skip
    return _same(SimulationPlan, scenario.simulation.model_copy(update={"host": planned}))


def exact_of(scenario: Scenario, nodes: Sequence[NodePlan]) -> ExactPlan | None:
    """Return the kernel of an exact run. By default it has memory for PyTorch, and for each node's own pages."""
    if scenario.run.on != "exact":
        return None
    memory_bytes = scenario.exact.memory or _GUEST_BYTES + len(nodes) * _NODE_BYTES
    return _same(ExactPlan, scenario.exact, memory_bytes=memory_bytes, system_call_s=scenario.exact.system_call)


def cluster_of(scenario: Scenario, nodes: Sequence[NodePlan]) -> ClusterPlan | None:
    """Return the machines of a run on several.

    Raise ``ScenarioError`` if a data centre has more nodes than ports, or machines are written for one that is none.
    """
    sizes = Counter(node.data_center for node in nodes)
    for name in scenario.cluster.data_centers:
        if name not in sizes:  # of a generator: the names of written data centres are known to the rules
            where = f"{scenario.place_of('cluster', 'data_centers', name)}: cluster.data_centers.{name}"
            raise ScenarioError(f"{where}: there is no data centre '{name}' ({nearest_or_all(name, sizes, 12)})")
    emulated = scenario.run.on == "emulate" and scenario.cluster.emulate
    if scenario.run.on != "cluster" and not emulated:
        return None
    written, machines = scenario.cluster.data_centers, {}
    for name, count in sizes.items():
        section = written.get(name, ClusterSite())
        first, last = section.ports or (0, 0)
        if first and last - first + 1 < count:
            where = f"{scenario.place_of('cluster', 'data_centers', name)}: cluster.data_centers.{name}.ports"
            raise ScenarioError(f"{where}: {count} nodes need as many ports; write '{first}-{first + count - 1}'")
        label = section.label or ("" if emulated else f"dc={name}")
        machines[name] = _same(MachinesPlan, section.model_copy(update={"label": label}), first_port=first)
    count = scenario.cluster.machines if emulated else 0
    return ClusterPlan(address=scenario.cluster.address, data_centers=machines, machines=count)


def _choice(technique: Technique) -> Choice:
    return Choice(kind=technique.kind, options=asdict(technique.options))
