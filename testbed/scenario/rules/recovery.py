"""Rules of faults, recovery, replicas and checkpoints: what a run needs to lose, replace or resume nodes."""

from __future__ import annotations

from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    by_tier,
    is_scripted,
    kinds,
    overlaps,
    pushed,
    tiers_of,
    updates_on_workers,
    with_servers,
    without_memory,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.sections.faults import MEMBER_KINDS, PACKET_KINDS


def continuing_needs_replaceable_nodes(scenario: Scenario) -> Found:
    loading = scenario.training.loading.options
    tier1, tier2 = scenario.sync.tier1.declared, scenario.sync.tier2.declared
    stuck = (
        without_servers(scenario)
        or any(overlay.declared.relays for _, overlay in by_tier(scenario.overlay))
        or scenario.order.declared.best_effort
        or overlaps(scenario)
        or scenario.checkpoint.every > 0
        or (updates_on_workers(scenario) and pushed(scenario) is Contribution.GRADIENT)
        or (tiers_of(scenario) == 2 and tier2.holds and not tier1.waits)
        or is_scripted(scenario)
        or any((site.global_servers or 1) > 1 for site in scenario.topology.data_centers)
        or any(getattr(loading, option, False) for option in ("spread", "source"))
    )
    if scenario.recovery.on_failure == "continue" and stuck:
        yield Violation(
            ("recovery", "on_failure"),
            "the others cannot go on without a node here",
            f"write 'restart', or paradigm: {with_servers()}, {_plain_transfer()}, "
            f"{kinds(SYNC, lambda sync: sync.holds)} on one tier at most, one global server, gradients for its "
            "optimizer, no checkpoints, no samples of other workers",
        )


def replica_repeats_updates(scenario: Scenario) -> Found:
    can_be_repeated = (
        scenario.recovery.on_failure == "continue"
        and not without_servers(scenario)
        and scenario.sync.tier2.declared.supports_failover
        and not scenario.codec.tier2.declared.has_memory
    )
    if scenario.recovery.replicas > 0 and not can_be_repeated:
        yield Violation(
            ("recovery", "replicas"),
            "a replica repeats the updates of one global server that waits for all, with codecs without memory",
            f"write 0, or on_failure: continue, with sync: {kinds(SYNC, lambda sync: sync.supports_failover)}, and on "
            f"tier 2 codec: {without_memory()}",
        )


def nan_skips_whole_gradients(scenario: Scenario) -> Found:
    if scenario.recovery.on_nan == "skip" and (without_servers(scenario) or overlaps(scenario)):
        yield Violation(
            ("recovery", "on_nan"),
            "leaves a whole gradient out, and here it is sent in parts, or to no server",
            "write 'abort'",
        )


def link_faults_need_links(scenario: Scenario) -> Found:
    if scenario.run.on == "local" and any(fault.hits_links for fault in scenario.faults):
        cure = "write 'on: emulate' or 'simulate', or let nodes fail"
        yield Violation(("faults",), "hit links, and loopback has none", cure)


def membership_changes_need_continue(scenario: Scenario) -> Found:
    if scenario.recovery.on_failure != "continue" and any(fault.kind in MEMBER_KINDS for fault in scenario.faults):
        yield Violation(
            ("faults",),
            "of kind 'join' or 'leave' need a run whose membership may change",
            "write 'recovery: {on_failure: continue}'",
        )


def packet_faults_need_packets(scenario: Scenario) -> Found:
    if scenario.run.on == "simulate" and any(fault.kind in PACKET_KINDS for fault in scenario.faults):
        yield Violation(
            ("faults",),
            "duplicate packets or change their order, and in virtual time data flow without packets",
            "write 'on: emulate', or leave them out",
        )


def nan_needs_values(scenario: Scenario) -> Found:
    if scenario.training.compute == "modelled" and any(fault.kind == "nan" for fault in scenario.faults):
        problem = "of kind 'nan' need values, and training.compute is 'modelled'"
        yield Violation(("faults",), problem, "remove them")


def full_disk_needs_checkpoints(scenario: Scenario) -> Found:
    if scenario.checkpoint.every == 0 and any(fault.kind == "disk_full" for fault in scenario.faults):
        problem = "of kind 'disk_full' hit checkpoints, and this run keeps none"
        yield Violation(("faults",), problem, "write 'checkpoint: {every: 10}'")


def leaving_loses_nothing(scenario: Scenario) -> Found:
    leaves = any(fault.kind == "leave" for fault in scenario.faults)
    if leaves and any(codec.declared.has_memory for _, codec in by_tier(scenario.codec)):
        yield Violation(
            ("faults",),
            "of kind 'leave' lose nothing, and this codec keeps residuals that would be lost with the node",
            f"write codec: {without_memory()}, or let it be killed",
        )


def _plain_transfer() -> str:
    """Return the overlays and orders that keep nothing at nodes, for a hint."""
    overlays = kinds(OVERLAYS, lambda overlay: not overlay.relays)
    return f"overlay: {overlays}, order: {kinds(ORDERS, lambda order: not order.best_effort)} without overlap"
