"""Rules of sums inside a data centre (``paradigm.inside``): what they go with, and where a library can make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from testbed.codec.options import CODECS
from testbed.policy.collective import INSIDE, inside_of
from testbed.policy.collective.inside import SERVERS, Inside
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, is_scripted, kinds, overlaps, pulls_rows, tiers_of
from testbed.scenario.schema import Scenario

_AT = ("paradigm", "inside")
_OWN = next(name for name, inside in INSIDE.items() if not inside.library)


def workers_sum_whole_rounds(scenario: Scenario) -> Found:
    if _inside(scenario) is None or tiers_of(scenario) != 2:
        return
    for place, problem, cure in _unfit(scenario):
        yield Violation(place, problem, f"write {cure}, or 'inside: {SERVERS}'")


def _unfit(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield place, problem and cure."""
    sync, inside = scenario.sync.tier1, scenario.paradigm.options.inside
    streaming = sync.declared.streaming(sync.options)
    if not sync.declared.waits or sync.declared.needs_reports:
        problem = f"'inside: {inside}' sums what all workers of a data centre have pushed, and"
        alone, asked = "here they do not wait for each other", f"'{sync.kind}' asks how long each of them took"
        problem = f"{problem} {asked if sync.declared.waits else alone}"
        fitting = kinds(SYNC, lambda each: each.waits and not each.needs_reports and 1 in each.tiers)
        yield ("sync", "tier1"), problem, f"sync: {fitting}"
    elif streaming is not None:
        problem = f"'inside: {inside}' sums whole models, and fragments travel while steps go on"
        yield ("sync",), problem, f"sync: {{kind: {sync.kind}}} without fragments and overlap_steps"
    if scenario.codec.tier1.kind != CODECS.default:
        problem = f"'inside: {inside}' sums values as they are"
        yield ("codec", "tier1"), problem, f"'tier1: {CODECS.default}'"
    if scenario.overlay.tier1.declared.relays:
        problem = f"'inside: {inside}' lets one worker of a data centre push for all, and there is nothing to relay"
        yield ("overlay", "tier1"), problem, f"'tier1: {OVERLAYS.default}'"
    if overlaps(scenario):
        problem = f"'inside: {inside}' sums after the whole backward pass"
        yield ("order",), problem, "'overlap: none'"
    if pulls_rows(scenario):
        problem = f"'rows': each worker asks for rows of its own, and with 'inside: {inside}' one pulls for all"
        yield ("paradigm", "pull"), problem, "'all'"
    if is_scripted(scenario):
        problem = f"a script pushes to its server when it likes, and 'inside: {inside}' sums in rounds"
        yield ("workload",), problem, "a scenario with 'training'"


def libraries_inside_need_sockets(scenario: Scenario) -> Found:
    inside = _inside(scenario)
    if inside is None or not inside.library:
        return
    if scenario.run.on == "simulate":
        yield Violation(
            _AT,
            "a library has sockets of its own, whose bytes virtual time does not see",
            f"write '{_OWN}', which is simulated, or run it 'on: emulate' or 'on: local'",
        )
    if scenario.transport.tls:
        problem = f"covers our own connections, and 'inside: {scenario.paradigm.options.inside}' opens others"
        yield Violation(("transport", "tls"), problem, f"write 'inside: {_OWN}', or tls: false")


def _inside(scenario: Scenario) -> Inside | None:
    return inside_of(asdict(scenario.paradigm.options))
