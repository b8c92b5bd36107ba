"""Scenario to Plan: a pure function. The same scenario gives the same Plan, byte for byte."""

from __future__ import annotations

from testbed.errors import ScenarioError
from testbed.plan.background import build_background
from testbed.plan.faults import build_faults, build_recovery, slowed, with_faults
from testbed.plan.model import (
    PLAN_VERSION,
    Choice,
    HostPlan,
    Plan,
    SimulationPlan,
    TechniquePlan,
    TrainingPlan,
    TransportPlan,
)
from testbed.plan.network import build_network, expand
from testbed.plan.placement import build_nodes
from testbed.plan.timeouts import derive
from testbed.plan.warnings import warnings_for
from testbed.scenario import BACK_ENDS, Scenario
from testbed.scenario.reading.axes import Technique
from testbed.scenario.schema import RunSection


def build_plan(scenario: Scenario, on: str | None = None) -> Plan:
    """Everything that a back end needs to know. ``on`` overrides ``run.on``. Raises ``ScenarioError``."""
    if on is not None and on != scenario.run.on:
        scenario = _moved(scenario, on)
    back_end = scenario.run.on
    topology = expand(scenario.topology)
    network = build_network(topology, back_end, scenario.seed)
    nodes = build_nodes(
        topology, scenario.device, back_end, scenario.paradigm.trait("tiers"), scenario.recovery.replicas
    )
    training = _training(scenario)
    faults = build_faults(scenario, network, nodes)
    return Plan(
        version=PLAN_VERSION, name=scenario.name, seed=scenario.seed, back_end=back_end, nodes=slowed(nodes, faults),
        network=with_faults(network, faults), faults=faults, recovery=build_recovery(scenario),
        transport=_transport(scenario), training=training, technique=_technique(scenario),
        checkpoint_every=scenario.checkpoint.every,
        timeouts=derive(scenario, network, nodes, training.model),
        warnings=warnings_for(scenario, back_end, network, nodes), background=build_background(scenario, network),
        simulation=_simulation(scenario),
    )  # fmt: skip


def _moved(scenario: Scenario, on: str) -> Scenario:
    """The same scenario on another back end, with the rules that depend on it looked at again."""
    if on not in BACK_ENDS:
        raise ScenarioError(f"--on: '{on}' is not one of {', '.join(BACK_ENDS)}")
    moved = scenario.model_copy(update={"run": RunSection(on=on)})
    problems = moved.problems_on_its_back_end()
    if problems:
        raise ScenarioError([f"--on {on}: {problem}" for problem in problems])
    return moved


def _choice(technique: Technique) -> Choice:
    return Choice(kind=technique.kind, options=technique.options())


def _transport(scenario: Scenario) -> TransportPlan:
    transport = scenario.transport
    return TransportPlan(
        congestion_control=transport.congestion_control,
        slow_start_after_idle=transport.slow_start_after_idle,
        unsent_limit_bytes=transport.unsent_limit,
        mac=transport.mac,
        tls=transport.tls,
        send_buffer_bytes=transport.send_buffer,
        receive_buffer_bytes=transport.receive_buffer,
        initial_window_packets=transport.initial_window,
        parallel_streams=transport.parallel_streams,
        best_effort_channels=scenario.order.options().get("channels", 0) if scenario.order.kind == "dgt" else 0,
    )


def _training(scenario: Scenario) -> TrainingPlan:
    training = scenario.training
    return TrainingPlan(
        model=_choice(training.model),
        data=_choice(training.data),
        split=_choice(training.split),
        batch_size=training.batch,
        rounds=training.rounds,
        evaluate_every=training.evaluate_every,
        target_accuracy=training.target_accuracy,
        compute=training.compute,
        loading=_choice(training.loading),
    )


def _simulation(scenario: Scenario) -> SimulationPlan:
    host, measured = scenario.simulation.host, None
    if host is not None:
        measured = HostPlan(
            cores=host.cores,
            message_s=host.message,
            byte_s=8 / host.stream,
            step_s=host.step,
            memory_s=8 / host.memory,
            packet_s=host.packet,
        )
    return SimulationPlan(fold=scenario.simulation.fold, events=scenario.simulation.events, host=measured)


def _technique(scenario: Scenario) -> TechniquePlan:
    one_tier = scenario.paradigm.trait("tiers") == 1  # workers face the algorithm of the WAN
    return TechniquePlan(
        paradigm=_choice(scenario.paradigm),
        sync_tier1=_choice(scenario.sync.tier2 if one_tier else scenario.sync.tier1),
        sync_tier2=_choice(scenario.sync.tier2),
        optimizer=_choice(scenario.optimizer),
        codec_tier1=_choice(scenario.codec.tier1),
        codec_tier2=_choice(scenario.codec.tier2),
        order=_choice(scenario.order),
        overlay_tier1=_choice(scenario.overlay.tier1),
        overlay_tier2=_choice(scenario.overlay.tier2),
        shard=_choice(scenario.shard),
    )
