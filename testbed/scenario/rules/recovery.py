"""Rules of faults, recovery, replicas and checkpoints: what a run needs to lose, replace or resume nodes."""

from __future__ import annotations

from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.overlay.base import Overlay
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import SyncPolicy
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.reading.axes import Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    by_tier,
    is_scripted,
    kinds,
    lan_rounds_option,
    overlaps,
    tiers_of,
    without_memory,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.sections.faults import MEMBER_KINDS, PACKET_KINDS


def continuing_needs_replaceable_nodes(scenario: Scenario) -> Found:
    if scenario.recovery.on_failure != "continue":
        return
    loading = scenario.training.loading.options
    if any(getattr(loading, option, False) for option in ("spread", "source")):
        yield Violation(
            ("recovery", "on_failure"), "a worker that is lost takes samples of others with it", "write 'restart'"
        )
    elif reason := _takes_along(scenario):
        yield Violation(
            ("recovery", "on_failure"),
            f"a worker that is lost takes with it what the others need: {reason}",
            f"write 'restart', or paradigm: {kinds(PARADIGMS, lambda each: not each.library)} at its defaults, with "
            f"'sync: {SYNC.default}'",
        )
    elif not without_servers(scenario) and (reason := _stuck(scenario)):
        yield Violation(
            ("recovery", "on_failure"),
            f"the others cannot go on without a node here: {reason}",
            f"write 'restart', or {_without_relays()} with {kinds(SYNC, lambda sync: not sync.waits)}, "
            f"{kinds(SYNC, lambda sync: sync.holds)} on one tier at most; or a paradigm without servers: "
            f"{kinds(PARADIGMS, lambda each: not each.tiers and not each.library)}",
        )


def _takes_along(scenario: Scenario) -> str:
    """Return what only one worker has, of a run in which workers exchange with each other."""
    paradigm = scenario.paradigm
    if not paradigm.declared.survives(paradigm.options):
        return "a part of the optimizer's state, an equal number in every data centre, or its place in a sum"
    if not without_servers(scenario):
        return ""
    if scenario.sync.tier1.declared.assigns_steps:
        return f"its reports, without which '{scenario.sync.tier1.kind}' assigns no steps"
    if paradigm.declared.global_sum and lan_rounds_option(scenario.sync.tier2):
        return "what its data centre has summed since the last round of all, in which the others have no part"
    return ""


def _stuck(scenario: Scenario) -> str:
    """Return what only the node that is lost knows, of a run with servers; empty: nothing."""
    tier1, tier2 = scenario.sync.tier1.declared, scenario.sync.tier2.declared
    if any(not _regroups(overlay.declared, sync.declared) for overlay, sync in _groups(scenario)):
        return "what a lost relay held is sent again with its round, and here each contribution is applied by itself"
    if tiers_of(scenario) == 2 and tier2.holds and not tier1.waits:
        return "a data centre's clock counts the pushes of all of its workers"
    return ""


def _groups(scenario: Scenario) -> list[tuple[Technique, Technique]]:
    """Return overlay and synchronisation algorithm of each tier."""
    overlays, algorithms = by_tier(scenario.overlay), by_tier(scenario.sync)
    return [(overlay, sync) for (_, overlay), (_, sync) in zip(overlays, algorithms, strict=True)]


def _regroups(overlay: type[Overlay], sync: type[SyncPolicy]) -> bool:
    """Return whether others go on when a member is lost that passes something on."""
    return not overlay.relays or (overlay.regroups and sync.waits)


def continuing_relays_send_one_payload(scenario: Scenario) -> Found:
    if scenario.recovery.on_failure != "continue" or without_servers(scenario):
        return
    tiers = zip(by_tier(scenario.codec), by_tier(scenario.overlay), strict=True)
    for number, ((tier, codec), (_, overlay)) in enumerate(tiers, start=1):
        follows = codec.declared.pull_on(codec.options, number) == "difference"
        if follows and overlay.declared.relays and (tier == "tier2" or tiers_of(scenario) == 2):
            yield Violation(
                ("codec", tier),
                f"'pull: difference' follows what each member holds. '{overlay.kind}' passes one payload on to all, "
                "and with 'on_failure: continue' a member that is back holds other values than they",
                f"write 'pull: dense', {_without_relays()}, or 'on_failure: restart'",
            )


def replica_repeats_updates(scenario: Scenario) -> Found:
    can_be_repeated = (
        scenario.recovery.on_failure == "continue"
        and not without_servers(scenario)
        and scenario.sync.tier2.declared.supports_failover
        and not scenario.codec.tier2.declared.has_memory
        and not scenario.order.declared.best_effort
        and not scenario.overlay.tier2.declared.relays
        and all((site.global_servers or 1) == 1 for site in scenario.topology.data_centers)
    )
    if scenario.recovery.replicas > 0 and not can_be_repeated:
        yield Violation(
            ("recovery", "replicas"),
            "a replica repeats the updates of one global server that waits for all, with codecs without memory",
            f"write 0, or on_failure: continue, with sync: {kinds(SYNC, lambda sync: sync.supports_failover)}, and on "
            f"tier 2 codec: {without_memory()}, order: {_reliable()}, {_without_relays()}",
        )


def nan_skips_whole_gradients(scenario: Scenario) -> Found:
    if scenario.recovery.on_nan == "skip" and (without_servers(scenario) or overlaps(scenario)):
        yield Violation(
            ("recovery", "on_nan"),
            "leaves a whole gradient out, and here it is sent in parts, or to no server",
            "write 'abort'",
        )


def link_faults_need_links(scenario: Scenario) -> Found:
    reasons = {"local": "loopback has none", "cluster": "those of a cluster are not the run's to change"}
    if scenario.run.on in reasons and any(fault.hits_links for fault in scenario.faults):
        cure = "write 'on: emulate' or 'simulate', or let nodes fail"
        yield Violation(("faults",), f"hit links, and {reasons[scenario.run.on]}", cure)


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
    if leaves and scenario.order.declared.best_effort:
        problem = f"of kind 'leave' lose nothing, and '{scenario.order.kind}' sends blocks that may be lost"
        yield Violation(("faults",), problem, f"write order: {_reliable()}, or let it be killed")
    if leaves and is_scripted(scenario):
        problem = "of kind 'leave' end a worker after one of its rounds, and when a script ends is its own choice"
        yield Violation(("faults",), problem, "let it be killed")
    if leaves and without_servers(scenario):
        problem = "of kind 'leave' need servers, which answer all that a worker has pushed before it leaves"
        yield Violation(("faults",), problem, "let it be killed, or write 'paradigm: hips'")


def _without_relays() -> str:
    """Return the overlays that keep nothing at nodes, for a hint."""
    return f"overlay: {kinds(OVERLAYS, lambda overlay: not overlay.relays)}"


def _reliable() -> str:
    """Return the orders of which every message arrives, for a hint."""
    return kinds(ORDERS, lambda order: not order.best_effort)
