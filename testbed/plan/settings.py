"""Settings of a Plan that are those of the scenario, in the Plan's names and units."""

from __future__ import annotations

from dataclasses import asdict

from testbed.plan.model import (
    Choice,
    HostPlan,
    RecoveryPlan,
    SimulationPlan,
    TechniquePlan,
    TrainingPlan,
    TransportPlan,
)
from testbed.scenario import Scenario
from testbed.scenario.reading.axes import Technique
from testbed.scenario.sections.run import HostSection


def transport_of(scenario: Scenario) -> TransportPlan:
    transport = scenario.transport
    return TransportPlan(
        congestion_control=transport.congestion_control, slow_start_after_idle=transport.slow_start_after_idle,
        unsent_limit_bytes=transport.unsent_limit, mac=transport.mac, tls=transport.tls,
        send_buffer_bytes=transport.send_buffer, receive_buffer_bytes=transport.receive_buffer,
        initial_window_packets=transport.initial_window, parallel_streams=transport.parallel_streams,
        best_effort_channels=scenario.order.declared.channels(scenario.order.options),
    )  # fmt: skip


def training_of(scenario: Scenario) -> TrainingPlan:
    training = scenario.training
    return TrainingPlan(
        model=_choice(training.model), data=_choice(training.data), split=_choice(training.split),
        batch_size=training.batch, rounds=training.rounds, evaluate_every=training.evaluate_every,
        target_accuracy=training.target_accuracy, compute=training.compute, loading=_choice(training.loading),
    )  # fmt: skip


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
    recovery = scenario.recovery
    return RecoveryPlan(
        on_failure=recovery.on_failure, max_restarts=recovery.max_restarts, restart_delay_s=recovery.delay,
        on_nan=recovery.on_nan, replicas=recovery.replicas,
    )  # fmt: skip


def simulation_of(scenario: Scenario) -> SimulationPlan:
    simulation, host = scenario.simulation, scenario.simulation.host
    return SimulationPlan(fold=simulation.fold, events=simulation.events, host=None if host is None else _host(host))


def _host(host: HostSection) -> HostPlan:
    return HostPlan(
        cores=host.cores, message_s=host.message, byte_s=8 / host.stream, step_s=host.step, memory_s=8 / host.memory,
        packet_s=host.packet,
    )  # fmt: skip


def _choice(technique: Technique) -> Choice:
    return Choice(kind=technique.kind, options=asdict(technique.options))
