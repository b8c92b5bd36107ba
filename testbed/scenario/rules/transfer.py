"""Rules of what travels: what may be compressed, cut, lost or merged on its way, which rows are pulled, and TLS."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.codec.options import CHANGED, CODECS
from testbed.paradigms import PARADIGMS
from testbed.policy.events import Contribution
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.axes import TIERS
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    is_scripted,
    kinds,
    outer_of,
    overlaps,
    pulls_of,
    pulls_rows,
    pushed,
    reliable,
    tiers_of,
    tiers_of_differences,
    updates_on_workers,
    without_memory,
    without_relays,
)
from testbed.scenario.schema import Scenario
from testbed.training.options import LOADINGS, MODELS, OPTIMIZERS


def difference_follows_parameters(scenario: Scenario) -> Found:
    waits = scenario.sync.tier1.declared.waits
    gradients = pushed(scenario) is Contribution.GRADIENT
    sums_come_down = updates_on_workers(scenario) and waits and gradients
    for tier in tiers_of_differences(scenario) if sums_come_down else ():
        yield Violation(
            ("codec", tier),
            "'pull: difference' needs parameters, but workers with an optimizer of their own receive sums of gradients",
            "write 'pull: sparse-sum'",
        )


def changed_values_are_few(scenario: Scenario) -> Found:
    """If every value changes in every round, sending the changed values saves nothing."""
    for tier, pull in pulls_of(scenario).items() if not is_scripted(scenario) else ():
        reason = _changes_all(scenario) if pull == CHANGED else ""
        if reason:
            problem = f"'pull: changed' sends the values that have changed, but {reason} all of them"
            yield Violation(("codec", tier), problem, "write 'pull: dense'")


def _changes_all(scenario: Scenario) -> str:
    """Return the reason why values without a contribution change as well; empty if there is none."""
    contribution = pushed(scenario)
    if contribution is Contribution.DELTA:
        outer = outer_of(scenario)
        if outer is None:
            return ""
        kind, options = outer
    elif contribution is Contribution.GRADIENT and not updates_on_workers(scenario):
        kind = scenario.optimizer.kind
        options = scenario.optimizer.options
    else:
        return "a sum of gradients changes" if contribution is Contribution.GRADIENT else "a mean of models changes"
    return "" if OPTIMIZERS[kind].rests(options) else f"'{kind}' with these options changes"


def backups_are_what_members_hold(scenario: Scenario) -> Found:
    optimizer = scenario.optimizer
    waits = all(tier.declared.waits for _, tier in scenario.sync)
    compensates = optimizer.declared.needs_backups and not waits and tiers_of(scenario) > 0
    for tier in tiers_of_differences(scenario) if compensates else ():
        yield Violation(
            ("codec", tier),
            f"'{optimizer.kind}' compensates for what has changed since a gradient's values were sent, but with "
            "'pull: difference' a gradient is computed at older ones, as most differences are sent later",
            "write 'pull: dense'",
        )


def sums_in_steps_are_of_all(scenario: Scenario) -> Found:
    """If workers run the optimizer, servers make each sum that a codec needs, one after another."""
    gradients = pushed(scenario) is Contribution.GRADIENT and not is_scripted(scenario)
    if tiers_of(scenario) == 0 or not gradients or not updates_on_workers(scenario):
        return
    for tier in TIERS[2 - tiers_of(scenario) :]:
        codec = getattr(scenario.codec, tier)
        reason = _keeps_from_summing(scenario, tier)
        if codec.declared.summed and reason:
            problem = f"'{codec.kind}' lets servers sum in several steps where workers run the optimizer, but {reason}"
            yield Violation(("codec", tier), problem, "write 'optimizer.at: global', or another codec")


def _keeps_from_summing(scenario: Scenario, tier: str) -> str:
    """Return the reason why servers of a tier cannot sum in several steps; empty if there is none."""
    if scenario.recovery.on_failure == "continue":
        return "a worker that joins lacks what the others have of the sums before"
    if getattr(scenario.overlay, tier).declared.relays:
        return "relays wait for all keys of a round"
    if not getattr(scenario.aggregation, tier).declared.sums:
        return "a rule that compares contributions makes no sums"
    return "rows of tables travel separately" if pulls_rows(scenario) else ""


def overlap_needs_finished_values(scenario: Scenario) -> Found:
    if overlaps(scenario) and (pushed(scenario) is not Contribution.GRADIENT or updates_on_workers(scenario)):
        yield Violation(
            ("order",),
            "'overlap: layers' begins the next forward pass layer by layer, with values that come down ready to use; "
            "here workers update their own model, all of it at once",
            "write 'overlap: none'; slices and priorities still have their effect",
        )


def merging_needs_rounds_and_dense_payloads(scenario: Scenario) -> Found:
    for tier, overlay in scenario.overlay:
        sums = getattr(overlay.options, "merge", "") == "sum"
        if overlay.declared.relays and not getattr(scenario.sync, tier).declared.waits:
            if not overlay.declared.routes:
                yield Violation(
                    ("overlay", tier),
                    f"'{overlay.kind}' merges the contributions of one round on their way, but "
                    "here each is applied by itself, as it arrives",
                    f"write overlay: {kinds(OVERLAYS, lambda each: each.routes)} with 'merge: exact', "
                    f"'{OVERLAYS.default}', or an algorithm that waits for all, such as 'sync: {SYNC.default}'",
                )
            elif sums:
                problem = "adds up contributions on the way, but here each is applied by itself, as it arrives"
                yield Violation(("overlay", tier), f"'merge: sum' {problem}", "write 'merge: exact'")
        codec = getattr(scenario.codec, tier).declared
        if sums and (not codec.dense or codec.has_memory):
            reason = "a sum of this codec's payloads is not one of its payloads"
            if codec.dense:
                reason = "this codec's memory (its residual) is of one node's contributions, not of sums of several"
            dense = kinds(CODECS, lambda each: each.dense and not each.has_memory)
            cure = f"write 'merge: exact', or codec: {dense}"
            yield Violation(("overlay", tier), f"'merge: sum' adds up contributions on the way, but {reason}", cure)


def blocks_may_be_lost(scenario: Scenario) -> Found:
    order = scenario.order
    if not order.declared.best_effort:
        return
    if scenario.overlay.tier2.declared.relays:
        problem = "blocks go straight to the global servers, some of them unreliably, and cannot be merged on the way"
        yield Violation(("overlay", "tier2"), problem, f"write 'overlay: {{tier1: …, tier2: {OVERLAYS.default}}}'")
    if not scenario.codec.tier2.declared.dense:
        dense = CODECS.where(lambda codec: codec.dense)
        yield Violation(
            ("order",),
            f"'{order.kind}' cuts payloads into blocks and ranks these by the magnitudes of their elements. The "
            "payloads of this codec on tier 2 are not the tensor element by element, but codes or chosen entries, so a "
            "block of them has no magnitude",
            f"write 'codec: {{tier1: …, tier2: {dense[0]}}}'" + "".join(f" or 'tier2: {kind}'" for kind in dense[1:]),
        )
    if pushed(scenario) is Contribution.MODEL and not order.declared.repairs_losses(order.options):
        problem = "here models travel up, not gradients: a block that is lost would set parameters to zero"
        yield Violation(("order",), problem, "write 'late: retransmit' and 'code: exact'")


def tls_covers_all_traffic(scenario: Scenario) -> Found:
    if not scenario.transport.tls:
        return
    order = scenario.order
    paradigm = scenario.paradigm
    if order.declared.channels(order.options):
        problem = f"covers only connections, but '{order.kind}' also sends datagrams"
        yield Violation(("transport", "tls"), problem, f"write order: {reliable()}, or tls: false")
    if paradigm.declared.library:
        own = kinds(PARADIGMS, lambda paradigm: not paradigm.library)
        problem = f"covers only the testbed's own connections, but '{paradigm.kind}' opens its own"
        yield Violation(("transport", "tls"), problem, f"write paradigm: {own}, or tls: false")


def rows_are_pulled_where_few_are_needed(scenario: Scenario) -> Found:
    for problem, cure in _unfit(scenario) if pulls_rows(scenario) else ():
        yield Violation(("paradigm", "pull"), f"'rows': {problem}", f"write {cure}, or 'pull: all'")


def _unfit(scenario: Scenario) -> Iterator[tuple[str, str]]:
    training = scenario.training
    if not training.model.declared.tables:
        problem = f"'{training.model.kind}' declares no embedding tables, so that a batch needs every parameter"
        yield problem, f"model: {kinds(MODELS, lambda model: model.tables)}"
    elif training.compute == "modelled":
        yield "which rows a batch needs depends on its samples, but nothing is computed here", "'compute: real'"
    elif training.loading.declared.loads:
        problem = "workers say which rows the next batch needs before that batch is loaded"
        yield problem, f"loading: {kinds(LOADINGS, lambda loading: not loading.loads)}"
    if any(codec.declared.has_memory for _, codec in scenario.codec):
        problem = "a codec that remembers what it has sent of a tensor sees other rows in each round"
        yield problem, f"codec: {without_memory()}"
    if any(overlay.declared.relays for _, overlay in scenario.overlay):
        yield "a relay passes on one value to all, but each worker asks for rows of its own", without_relays()
    if scenario.order.declared.best_effort:
        problem = "blocks that may be lost hold the same elements in every round, but rows change"
        yield problem, f"order: {reliable()}"
    if pushed(scenario) is not Contribution.GRADIENT or updates_on_workers(scenario):
        problem = "an optimizer on every worker needs all rows: it changes also those that no batch of that worker uses"
        first = kinds(SYNC, lambda sync: sync.contribution is Contribution.GRADIENT)
        yield problem, f"sync: {first}, with 'optimizer: {{at: global}}'"
    elif tiers_of(scenario) == 2 and not scenario.sync.tier1.declared.waits:
        problem = (
            "a local server asks for the rows of all its workers at once, but here they do not wait for each other"
        )
        one_tier = kinds(PARADIGMS, lambda paradigm: paradigm.tiers == 1)
        yield problem, f"'tier1: {SYNC.default}', paradigm: {one_tier}"
    if scenario.recovery.on_failure == "continue":
        problem = "a node that comes back takes values from servers that hold rows of different rounds"
        yield problem, "on_failure: restart or abort"
