"""Rules of paradigms without servers: what has no effect there, and which codecs they take."""

from __future__ import annotations

from testbed.codec.options import CODECS
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, by_tier, kinds, overlaps, without_servers
from testbed.scenario.schema import Scenario

_REMOVE = f"remove it, or write 'paradigm: {PARADIGMS.default}'"


def no_synchronisation(scenario: Scenario) -> Found:
    if without_servers(scenario) and _any_chosen(scenario, "sync"):
        problem = "has no effect without servers: all-reduce waits for all, and gossip has its own algorithm"
        yield Violation(("sync",), problem, _REMOVE)


def codec_of_paradigm(scenario: Scenario) -> Found:
    paradigm, codec = scenario.paradigm, scenario.codec.tier2
    if paradigm.declared.codecs == "dense" and not codec.declared.dense:
        yield Violation(
            ("codec",),
            "this codec has a memory per server, and without servers there is none",
            f"'{paradigm.kind}' takes {kinds(CODECS, lambda codec: codec.dense)}; "
            "'algorithm: hitopk' is sparse by itself",
        )
    if paradigm.declared.codecs == "exact" and codec.kind != CODECS.default:
        problem = (
            "a library sums the values of workers as they are"
            if paradigm.declared.library
            else "gossip averages models, and an element that a codec withholds would be missing in the average"
        )
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}'")


def no_sharding(scenario: Scenario) -> Found:
    if without_servers(scenario) and _any_chosen(scenario, "shard"):
        yield Violation(("shard",), "places keys on servers, and without servers it has no effect", _REMOVE)


def libraries_need_sockets(scenario: Scenario) -> Found:
    if scenario.paradigm.declared.library and scenario.run.on == "simulate":
        yield Violation(
            ("paradigm",),
            "a library has sockets of its own, whose bytes virtual time does not see",
            "run it 'on: emulate' or 'on: local', or simulate 'paradigm: {kind: allreduce, algorithm: ring}'",
        )


def no_order(scenario: Scenario) -> Found:
    if without_servers(scenario) and _any_chosen(scenario, "order"):
        problem = "orders the slices that are sent to servers, and without servers it has no effect"
        yield Violation(("order",), problem, _REMOVE)


def layers_overlap_with_servers(scenario: Scenario) -> Found:
    if not without_servers(scenario) or not overlaps(scenario) or _any_chosen(scenario, "order"):
        return
    cure = "write 'overlap: none'"
    if hasattr(scenario.paradigm.options, "overlap"):
        cure += (
            f", and 'paradigm: {{kind: {scenario.paradigm.kind}, overlap: buckets}}' to sum during the backward pass"
        )
    yield Violation(("order",), "'overlap: layers' sends layers to servers, and without servers it has no effect", cure)


def no_overlay(scenario: Scenario) -> Found:
    if without_servers(scenario) and _any_chosen(scenario, "overlay"):
        problem = "relays contributions to servers, and without servers it has no effect"
        yield Violation(("overlay",), problem, _REMOVE)


def _any_chosen(scenario: Scenario, axis: str) -> bool:
    """Return whether ``axis`` has another kind than its default, on any tier."""
    value, default = getattr(scenario, axis), type(scenario).model_fields[axis].default
    techniques = [value] if hasattr(value, "kind") else [technique for _, technique in by_tier(value)]
    return any(technique.kind != default for technique in techniques)
