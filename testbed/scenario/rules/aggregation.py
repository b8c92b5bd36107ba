"""Rules of aggregation: what aggregation rules that compare all contributions of a round need of other techniques."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from testbed.aggregation import AGGREGATION
from testbed.codec.options import CODECS
from testbed.policy.collective.options import SERVERS, inside_of
from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.scenario.reading.axes import TIERS, Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, is_scripted, kinds, pulls_rows, pushed, tiers_of
from testbed.scenario.schema import Scenario

_OR_MEAN = f"or 'aggregation: {AGGREGATION.default}'"


def robust_rules_see_every_contribution(scenario: Scenario) -> Found:
    for tier, _ in _robust(scenario):
        sees = "compares the contributions of all members to one round, but here"
        overlay = getattr(scenario.overlay, tier)
        if not getattr(scenario.sync, tier).declared.waits:
            problem = f"{sees} each is applied by itself, as it arrives"
            yield Violation(
                ("aggregation", tier), problem, f"write sync: {kinds(SYNC, lambda each: each.waits)}, {_OR_MEAN}"
            )
        if overlay.declared.relays and getattr(overlay.options, "merge", "") == "sum":
            problem = f"{sees} relays add them up on their way"
            yield Violation(("aggregation", tier), problem, f"write overlay: 'merge: exact', {_OR_MEAN}")
        if tier == TIERS[0] and inside_of(asdict(scenario.paradigm.options)) is not None:
            problem = f"{sees} workers sum among themselves before one of them pushes"
            yield Violation(("aggregation", tier), problem, f"write 'inside: {SERVERS}', {_OR_MEAN}")
        if pulls_rows(scenario):
            problem = f"{sees} workers push different rows of a table"
            yield Violation(("aggregation", tier), problem, f"write 'pull: all', {_OR_MEAN}")


def robust_rules_can_judge_what_they_see(scenario: Scenario) -> Found:
    for tier, rule in _robust(scenario):
        if rule.declared.by_element and getattr(scenario.codec, tier).declared.sparse:
            problem = "compares elements one by one, but this codec leaves most of them out of a payload"
            dense = kinds(CODECS, lambda codec: not codec.sparse)
            by_whole = kinds(AGGREGATION, lambda each: not each.by_element)
            yield Violation(("aggregation", tier), problem, f"write codec: {dense}, or aggregation: {by_whole}")
        if rule.declared.from_zero and pushed(scenario) is Contribution.MODEL:
            problem = "measures gradients or changes of models from 0, but here whole models travel up"
            others = kinds(AGGREGATION, lambda each: not each.from_zero)
            yield Violation(("aggregation", tier), problem, f"write aggregation: {others}")


def whole_contributions_arrive_together(scenario: Scenario) -> Found:
    sync = scenario.sync.tier1
    reason = ""
    if is_scripted(scenario):
        reason = "a script may wait for one key before it pushes the next"
    elif sync.declared.streaming(sync.options) is not None:
        reason = "fragments of the model take turns"
    elif scenario.recovery.on_failure == "continue":
        reason = "a node may be lost when some keys of a round are combined and others are not"
    for tier, rule in _robust(scenario) if reason else ():
        if rule.declared.whole:
            problem = f"measures contributions over all keys of a round, but {reason}"
            others = kinds(AGGREGATION, lambda each: not each.whole)
            yield Violation(("aggregation", tier), problem, f"write aggregation: {others}")


def _robust(scenario: Scenario) -> Iterator[tuple[str, Technique]]:
    """Yield the tiers of servers whose rule needs more than a sum."""
    for tier in TIERS[2 - tiers_of(scenario) :]:
        rule = getattr(scenario.aggregation, tier)
        if not rule.declared.sums:
            yield tier, rule
