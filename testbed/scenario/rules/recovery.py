"""Rules of faults, recovery, replicas and checkpoints: what a run needs to lose, replace or resume nodes."""

from __future__ import annotations

from testbed.codec.options import MIRRORED
from testbed.declaration import other_than_default
from testbed.paradigms import PARADIGMS, Paradigm
from testbed.policy.sync import SYNC
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    is_scripted,
    kinds,
    lan_rounds_option,
    overlaps,
    pulls_of,
    reliable,
    tiers_of,
    without_memory,
    without_relays,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.settings.faults import LINK_KINDS, MEMBER_KINDS, PACKET_KINDS


def continuing_needs_replaceable_nodes(scenario: Scenario) -> Found:
    if scenario.recovery.on_failure != "continue":
        return
    loading = scenario.training.loading.options
    if any(getattr(loading, option, False) for option in ("spread", "source")):
        yield Violation(("recovery", "on_failure"), "a lost worker takes samples of others with it", "write 'restart'")
    elif reason := _takes_along(scenario):
        yield Violation(
            ("recovery", "on_failure"),
            f"a lost worker takes along what the others need: {reason}",
            f"write 'restart', or paradigm: {kinds(PARADIGMS, _goes_on)} at its defaults, with 'sync: {SYNC.default}'",
        )
    elif not without_servers(scenario) and (reason := _stuck(scenario)):
        yield Violation(
            ("recovery", "on_failure"),
            f"the others cannot go on without a node here: {reason}",
            f"write 'restart', or {without_relays()} with {kinds(SYNC, lambda sync: not sync.waits)}, "
            f"{kinds(SYNC, lambda sync: sync.holds)} on one tier at most; or a paradigm without servers: "
            f"{kinds(PARADIGMS, lambda each: not each.tiers and _goes_on(each))}",
        )


def _goes_on(paradigm: type[Paradigm]) -> bool:
    """Return whether runs of a paradigm can continue without a worker, with suitable options."""
    return not paradigm.library and not paradigm.cuts_models


def _takes_along(scenario: Scenario) -> str:
    """Return the state that is lost with a worker if workers exchange with each other; empty if there is none."""
    paradigm = scenario.paradigm
    if not paradigm.declared.survives(paradigm.options):
        return "a part of the optimizer's state, an equal number in every data centre, or its place in a sum"
    if not without_servers(scenario):
        return ""
    if scenario.sync.tier1.declared.assigns_steps:
        return f"its reports, without which '{scenario.sync.tier1.kind}' cannot assign steps"
    if paradigm.declared.global_sum and lan_rounds_option(scenario.sync.tier2):
        return "what its data centre has summed since the last round of all data centres"
    return ""


def _stuck(scenario: Scenario) -> str:
    """Return why a run with servers cannot continue after losing a node; empty if it can."""
    for (_, overlay), (_, sync) in zip(scenario.overlay, scenario.sync, strict=True):
        if overlay.declared.relays and not (overlay.declared.regroups and sync.declared.waits):
            again = "what a lost relay held is sent again with its round"
            return f"{again}, but here each contribution is applied by itself"
    below = scenario.sync.tier1
    if tiers_of(scenario) == 2 and below.declared.local_model(below.options) is not None:
        return "a local server has a model of its own"
    if tiers_of(scenario) == 2 and scenario.sync.tier2.declared.holds and not scenario.sync.tier1.declared.waits:
        return "a data centre's clock counts the pushes of all of its workers"
    return ""


def continuing_relays_send_one_payload(scenario: Scenario) -> Found:
    if scenario.recovery.on_failure != "continue" or without_servers(scenario):
        return
    for tier, pull in pulls_of(scenario).items():
        overlay = getattr(scenario.overlay, tier)
        if pull in MIRRORED and overlay.declared.relays:
            yield Violation(
                ("codec", tier),
                f"'pull: {pull}' follows what each member holds. '{overlay.kind}' passes one payload on to all, but "
                "with 'on_failure: continue' a member that is back holds other values than the rest",
                f"write 'pull: dense', {without_relays()}, or 'on_failure: restart'",
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
            f"tier 2 codec: {without_memory()}, order: {reliable()}, {without_relays()}",
        )


def checkpoints_need_all_at_one_round(scenario: Scenario) -> Found:
    stuck = [sync.kind for _, sync in scenario.sync if not sync.declared.pauses and not without_servers(scenario)]
    if scenario.checkpoint.every and stuck:
        problem = (
            f"all workers stop after the same round, but under '{stuck[0]}' one may need pushes of others to get there"
        )
        yield Violation(("checkpoint", "every"), problem, f"write 0, or sync: {kinds(SYNC, lambda sync: sync.pauses)}")


def restarting_has_its_options(scenario: Scenario) -> Found:
    if scenario.recovery.on_failure == "restart":
        return
    for key in other_than_default(scenario.recovery, "max_restarts", "restart_delay_s"):
        problem = f"has no effect with 'on_failure: {scenario.recovery.on_failure}'"
        yield Violation(("recovery", key), problem, "remove it, or write 'on_failure: restart'")


def nan_needs_numbers(scenario: Scenario) -> Found:
    if scenario.recovery.on_nan != "abort" and scenario.training.compute == "modelled":
        problem = "has no effect: with training.compute 'modelled' there are no numbers"
        yield Violation(("recovery", "on_nan"), problem, "write 'abort'")


def nan_skips_whole_gradients(scenario: Scenario) -> Found:
    if scenario.recovery.on_nan == "skip" and (without_servers(scenario) or overlaps(scenario)):
        problem = "leaves out a whole gradient, but here it is sent in parts, or to no server"
        yield Violation(("recovery", "on_nan"), problem, "write 'abort'")


def faults_have_something_to_hit(scenario: Scenario) -> Found:
    faults = {fault.kind for fault in scenario.faults}
    facilities = scenario.run.facilities
    if facilities.no_link_faults and faults.intersection(LINK_KINDS):
        cure = "write 'on: emulate' or 'simulate', or let nodes fail"
        yield Violation(("faults",), f"hit links, and {facilities.no_link_faults}", cure)
    if scenario.recovery.on_failure != "continue" and faults.intersection(MEMBER_KINDS):
        problem = "of kind 'join' or 'leave' need a run whose membership may change"
        yield Violation(("faults",), problem, "write 'recovery: {on_failure: continue}'")
    if not facilities.has_processes and faults.intersection(PACKET_KINDS):
        problem = (
            "duplicate packets or change their order, but in virtual time packets come once and in order, or are lost"
        )
        yield Violation(("faults",), problem, "write 'on: emulate', or leave them out")
    if "attack" in faults and (without_servers(scenario) or overlaps(scenario)):
        problem = "of kind 'attack' change a whole contribution to a server, but here it goes in parts, or to no server"
        cure = f"write 'paradigm: {PARADIGMS.default}', and 'overlap: none' where 'order' has it"
        yield Violation(("faults",), problem, cure)
    if scenario.checkpoint.every == 0 and "disk_full" in faults:
        problem = "of kind 'disk_full' hit checkpoints, but this run keeps none"
        yield Violation(("faults",), problem, "write 'checkpoint: {every: 10}'")


def leaving_loses_nothing(scenario: Scenario) -> Found:
    if all(fault.kind != "leave" for fault in scenario.faults):
        return
    if any(codec.declared.has_memory for _, codec in scenario.codec):
        problem = "of kind 'leave' lose nothing, but this codec keeps residuals that would be lost with the node"
        yield Violation(("faults",), problem, f"write codec: {without_memory()}, or 'kind: kill'")
    if scenario.order.declared.best_effort:
        problem = f"of kind 'leave' lose nothing, but '{scenario.order.kind}' sends blocks that may be lost"
        yield Violation(("faults",), problem, f"write order: {reliable()}, or 'kind: kill'")
    if is_scripted(scenario):
        problem = "of kind 'leave' end a worker after one of its rounds, but a script decides itself when it ends"
        yield Violation(("faults",), problem, "write 'kind: kill'")
    if without_servers(scenario):
        problem = "of kind 'leave' need servers, which answer all that a worker has pushed before it leaves"
        yield Violation(("faults",), problem, "write 'kind: kill', or write 'paradigm: hips'")
