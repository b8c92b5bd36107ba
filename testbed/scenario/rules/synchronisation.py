"""Rules of synchronisation: which algorithms go together on two tiers, and where the optimizer runs under them.

The algorithm on tier 1 is the one that workers face: it decides what they push. Tier 2 must be able to combine that.
"""

from __future__ import annotations

from dataclasses import asdict, fields

from testbed.paradigms import PARADIGMS
from testbed.policy.collective.options import inside_of
from testbed.policy.events import Contribution
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import TOKEN
from testbed.scenario.reading.axes import Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    is_scripted,
    kinds,
    lan_rounds_option,
    optimizer_place,
    overlaps,
    places_of,
    pulls_rows,
    pushed,
    sums_inside_data_centers,
    tiers_of,
    updates_on_workers,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import generated
from testbed.training.options import OPTIMIZERS


def one_tier_has_one_value(scenario: Scenario) -> Found:
    if tiers_of(scenario) == 2:
        return
    tiers = "is one tier" if tiers_of(scenario) else "are no tiers"
    if tiers_of(scenario):
        axes: tuple[str, ...] = ("sync", "codec", "overlay")
    else:  # other overlays than the default are refused anyway
        axes = ("sync",) if sums_inside_data_centers(scenario) else ("sync", "codec")
    for axis in axes:
        tier1 = getattr(scenario, axis).tier1
        tier2 = getattr(scenario, axis).tier2
        if tier1 != tier2 and tier1.kind != getattr(tier2.declared, "partner", ""):
            problem = f"with 'paradigm: {scenario.paradigm.kind}' there {tiers}, but 'tier1' differs from 'tier2'"
            yield Violation((axis,), problem, f"write '{axis}: {tier2.kind}'")
    option = lan_rounds_option(scenario.sync.tier2)
    if option and tiers_of(scenario) == 1:
        problem = "with one tier there are no rounds inside a data centre to count"
        yield Violation(("sync", "tier2", option), problem, f"write '{option}: 1'")


def fragments_travel_by_themselves(scenario: Scenario) -> Found:
    sync = scenario.sync.tier1
    streaming = sync.declared.streaming(sync.options)
    if streaming is None:
        return
    changed = [each.name for each in fields(sync.options) if each.name in ("fragments", "overlap_steps")]
    cure = f"write sync: {{kind: {sync.kind}}} without {' and '.join(changed)}"
    if not scenario.paradigm.declared.global_sum:
        problem = "fragments need outer steps along a sum over all workers, but here there is no such sum"
        yield Violation(("sync",), problem, f"{cure}, or paradigm: {kinds(PARADIGMS, lambda each: each.global_sum)}")
    faced = (scenario.sync.tier2,) if tiers_of(scenario) == 1 else (scenario.sync.tier1, scenario.sync.tier2)
    if scenario.recovery.on_failure == "continue" and any(tier.declared.waits for tier in faced):
        problem = "goes on from whole models, but with fragments a model is made of several rounds"
        yield Violation(("recovery", "on_failure"), problem, f"write 'restart', or {cure.removeprefix('write ')}")
    if any(overlay.declared.relays for _, overlay in scenario.overlay):
        problem = "keys that travel together are merged when all have arrived, but a fragment has only some of them"
        yield Violation(("overlay",), problem, f"write '{OVERLAYS.default}', or {cure.removeprefix('write ')}")
    if getattr(scenario.paradigm.options, "optimizer_work", "replicated") != "replicated":
        problem = "shares the steps of whole models, but here each step is that of a fragment"
        yield Violation(("paradigm", "optimizer_work"), problem, "write 'replicated'")


def late_answers_are_of_whole_rounds(scenario: Scenario) -> Found:
    """Workers may go on without answers to their last pushes only if both tiers do, and servers answer each push."""
    if not any(sync.declared.lags for _, sync in scenario.sync):
        return
    fitting = kinds(SYNC, lambda each: each.waits and not each.lags)
    if tiers_of(scenario) == 2 and scenario.sync.tier1 != scenario.sync.tier2:
        lagging = next(sync.kind for _, sync in scenario.sync if sync.declared.lags)
        problem = f"'{lagging}' needs the same options on both tiers: all that a worker receives is equally late"
        yield Violation(("sync",), problem, f"write 'sync: {{kind: {lagging}, …}}'")
    if reason := _needs_answers(scenario):
        problem = f"with '{scenario.sync.tier1.kind}' workers go on without answers to their last pushes, but {reason}"
        yield Violation(("sync",), problem, f"write sync: {fitting}")
    if scenario.recovery.on_failure == "continue":
        problem = "repeats the round under way, but here several rounds are under way"
        yield Violation(("recovery", "on_failure"), problem, f"write 'restart', or sync: {fitting}")


def _needs_answers(scenario: Scenario) -> str:
    """Return the reason why a push must be answered before the next push; empty if there is none."""
    if tiers_of(scenario) == 0:
        return "here no server answers"
    if is_scripted(scenario):
        return "a script waits for each answer"
    if overlaps(scenario):
        return "'overlap: layers' begins a layer when its values have arrived"
    if pulls_rows(scenario):
        return "each push asks for the rows of the next batch"
    relays = any(overlay.declared.relays for _, overlay in scenario.overlay)
    return "relays handle one round of a key at a time" if relays else ""


def tiers_fit(scenario: Scenario) -> Found:
    if tiers_of(scenario) != 2:
        return
    tier1 = scenario.sync.tier1
    if 1 not in tier1.declared.tiers:
        yield Violation(("sync", "tier1"), f"'{tier1.kind}' works on the WAN only", f"write 'tier1: {SYNC.default}'")
    elif tier1.declared.contribution is Contribution.GRADIENT:
        yield from _above_gradients(scenario)
    else:
        yield from _above_local_steps(scenario)


def _above_gradients(scenario: Scenario) -> Found:
    tier1 = scenario.sync.tier1
    tier2 = scenario.sync.tier2
    if tier2.declared.contribution is not Contribution.GRADIENT:
        problem = f"'{tier2.kind}' combines models, but with '{tier1.kind}' on tier 1 workers push gradients"
        yield Violation(("sync", "tier2"), problem, f"write 'sync: {tier2.kind}' for both tiers")
    elif not tier1.declared.waits and tier2.declared.waits:
        gradients = Contribution.GRADIENT
        first, *others = SYNC.where(lambda sync: not sync.waits and sync.contribution is gradients)
        yield Violation(
            ("sync", "tier2"),
            f"'{tier2.kind}' counts one push per data centre and round, but '{tier1.kind}' on tier 1 has no such round",
            " or ".join([f"write 'tier2: {first}'", *(f"'{kind}'" for kind in others)]),
        )


def _above_local_steps(scenario: Scenario) -> Found:
    tier1 = scenario.sync.tier1
    tier2 = scenario.sync.tier2
    averages_models = tier1.declared.contribution is Contribution.MODEL
    where = ("sync", "tier2")
    if tier2.declared.contribution is Contribution.DELTA and not tier2.declared.waits and not averages_models:
        yield from _above_rounds_of_changes(tier1, tier2)
        return
    if not tier1.declared.waits and tier2.kind != tier1.kind:
        problem = f"with '{tier1.kind}' on tier 1 each change goes up by itself, but '{tier2.kind}' waits for a round"
        yield Violation(where, problem, f"write 'sync: {{kind: {tier1.kind}, …}}'")
        return
    sums_each_round = tier2.declared.waits and tier2.declared.contribution is Contribution.GRADIENT
    if tier2 != tier1 and (averages_models or tier2.kind == tier1.kind):
        other = "" if averages_models else f", or 'tier2: {SYNC.default}'"
        problem = f"'{tier1.kind}' needs the same options on both tiers"
        yield Violation(where, problem, f"write 'sync: {{kind: {tier1.kind}, …}}'{other}")
    elif tier2.kind != tier1.kind and not sums_each_round:
        problem = f"with '{tier1.kind}' on tier 1 every round waits for all data centres, but '{tier2.kind}' does not"
        yield Violation(where, problem, f"write 'tier2: {SYNC.default}' or 'tier2: {tier1.kind}'")


def _above_rounds_of_changes(tier1: Technique, tier2: Technique) -> Found:
    """Tier 1 waits for all workers of a data centre, or is the same algorithm; both have the same local steps."""
    if tier1.kind != tier2.kind and not (tier1.declared.waits and tier2.declared.partner):
        problem = f"'{tier2.kind}' works above '{tier2.declared.partner or tier2.kind}', not above '{tier1.kind}'"
        yield Violation(("sync", "tier1"), problem, f"write 'sync: {{kind: {tier2.kind}, …}}'")
        return
    for name in sorted({each.name for each in fields(tier1.options)} & {each.name for each in fields(tier2.options)}):
        below = getattr(tier1.options, name)
        if below != getattr(tier2.options, name):
            problem = f"differs from the {below} of tier 1, which its workers follow"
            yield Violation(("sync", "tier2", name), problem, f"write '{name}: {below}'")


def moments_are_averaged_at_servers(scenario: Scenario) -> Found:
    sync = scenario.sync.tier2 if tiers_of(scenario) == 1 else scenario.sync.tier1
    averaged = sync.declared.moments(sync.options)
    if not averaged:
        return
    where = ("sync", "tier1", f"{next(iter(averaged))}_moments")
    together = [overlay.kind for _, overlay in scenario.overlay if overlay.declared.relays]
    together += [rule.kind for _, rule in scenario.aggregation if not rule.declared.sums]
    lossy = [codec.kind for _, codec in scenario.codec if not codec.declared.exact]
    inside = sums_inside_data_centers(scenario) or inside_of(asdict(scenario.paradigm.options))
    if tiers_of(scenario) == 0 or inside or is_scripted(scenario):
        yield Violation(where, "are averaged by servers, and only those of the workers' own optimizers", "write 0")
    elif sync.declared.streaming(sync.options) is not None:
        yield Violation(where, "are of the whole model, but here fragments of it travel", "write 0")
    elif together or lossy or scenario.order.declared.best_effort:
        other = (together + lossy + [scenario.order.kind])[0]
        problem = f"travel whole and only in some rounds, but '{other}' needs the same in every round, or sends a part"
        yield Violation(where, problem, "write 0")


def quorums_are_counted_at_one_server(scenario: Scenario) -> Found:
    sites = generated(scenario.topology).data_centers
    servers = sum(site.global_servers or int(site.central) for site in sites)
    stuck = [sync.kind for _, sync in scenario.sync if not sync.declared.pauses and not without_servers(scenario)]
    if stuck and servers > 1:
        problem = (
            f"'{stuck[0]}' combines all keys of the same members, but each of several global servers has only some keys"
        )
        yield Violation(
            ("sync",), problem, f"write 'global_servers: 1', or sync: {kinds(SYNC, lambda each: each.pauses)}"
        )


def tokens_are_counted_at_servers(scenario: Scenario) -> Found:
    sync = scenario.sync.tier2 if tiers_of(scenario) == 1 else scenario.sync.tier1
    if pushed(scenario) is Contribution.GRADIENT or sync.declared.weights(sync.options) != TOKEN:
        return
    where = ("sync", "tier1", "weights")
    cure = "write 'weights: worker'"
    relays = [overlay.kind for _, overlay in scenario.overlay if overlay.declared.relays]
    rules = [rule.kind for _, rule in scenario.aggregation if not rule.declared.sums]
    if tiers_of(scenario) == 0 or sums_inside_data_centers(scenario) or inside_of(asdict(scenario.paradigm.options)):
        problem = f"'{TOKEN}' weighs each contribution at the server, but here workers sum among themselves"
        yield Violation(where, problem, cure)
    elif relays or rules:
        problem = (
            f"'{TOKEN}' weighs each contribution at the server, but '{(relays + rules)[0]}' combines them differently"
        )
        yield Violation(where, problem, cure)
    elif is_scripted(scenario):
        yield Violation(where, f"'{TOKEN}' counts samples, but a script has data of its own", cure)


def optimizer_runs_where_values_are(scenario: Scenario) -> Found:
    faced = scenario.sync.tier2 if tiers_of(scenario) == 1 else scenario.sync.tier1
    if is_scripted(scenario) or (tiers_of(scenario) != 1 and 1 not in faced.declared.tiers):
        return  # a script has its own optimizer; the other case has been refused
    optimizer = scenario.optimizer
    at = optimizer_place(scenario)
    if tiers_of(scenario) == 0:  # then it runs on the workers anyway
        gradients = faced.declared.contribution is Contribution.GRADIENT
        if gradients and at == "worker" and scenario.paradigm.declared.models:
            problem = "has no effect: 'paradigm.gradients' decides whether steps are along a mean or a sum"
            yield Violation(
                ("optimizer", "at"), problem, "write 'at: global', and 'paradigm.gradients: mean' for a mean"
            )
        return
    if faced.declared.contribution is not Contribution.GRADIENT and at != "worker":
        problem = f"with '{scenario.sync.tier2.kind}' the optimizer runs on the workers, for their local steps"
        if "worker" in places_of(optimizer.declared):
            cure = f"write 'optimizer: {{kind: {optimizer.kind}, at: worker}}'"
        else:  # one for servers only
            cure = f"write 'at: worker', with optimizer: {kinds(OPTIMIZERS, lambda each: 'worker' in places_of(each))}"
        yield Violation(("optimizer",), problem, cure)
    elif faced.declared.contribution is Contribution.GRADIENT and at == "worker":
        late = [tier.kind for tier in (scenario.sync.tier1, scenario.sync.tier2) if not tier.declared.waits]
        if late:
            yield Violation(
                ("optimizer", "at"),
                f"an optimizer on every worker needs the sum over all of them, but '{late[0]}' does not wait for it",
                "write 'at: global'",
            )


def outer_optimizers_follow_changes(scenario: Scenario) -> Found:
    """An outer optimizer steps along changes of models, element by element, at the global servers or at all workers."""
    outer = scenario.outer_optimizer
    if outer is None:
        return
    where = ("outer_optimizer",)
    if pushed(scenario) is Contribution.GRADIENT:
        local = kinds(SYNC, lambda sync: sync.contribution is not Contribution.GRADIENT)
        problem = f"steps along changes of models, but with '{scenario.sync.tier1.kind}' workers push gradients"
        yield Violation(where, problem, f"write sync: {local}, or remove it")
    if outer.declared.whole_tensors or outer.declared.needs_backups:
        fitting = kinds(OPTIMIZERS, lambda each: not each.whole_tensors and not each.needs_backups)
        problem = f"'{outer.kind}' needs more than the changes of single elements"
        yield Violation(where, problem, f"write {fitting}")
    if getattr(outer.options, "clip_norm", 0.0):
        problem = "limits the norm of a gradient, but an outer optimizer steps along changes of models"
        yield Violation((*where, "clip_norm"), problem, "write 'clip_norm: 0', and clip what 'optimizer' steps along")


def norms_need_whole_gradients(scenario: Scenario) -> Found:
    """Global servers can clip by a gradient's norm only if one of them has the whole gradient of a single round."""
    if is_scripted(scenario) or tiers_of(scenario) == 0 or updates_on_workers(scenario):
        return
    if not getattr(scenario.optimizer.options, "clip_norm", 0.0):
        return
    where = ("optimizer", "clip_norm")
    sites = generated(scenario.topology).data_centers
    late = [tier.kind for tier in (scenario.sync.tier1, scenario.sync.tier2) if not tier.declared.waits]
    on_workers = "" if late else ", or 'optimizer.at: worker'"
    if sum(site.global_servers or int(site.central) for site in sites) > 1:
        problem = "the norm is that of all parameters, but each of several global servers has only a part of them"
        yield Violation(where, problem, f"write 'global_servers: 1'{on_workers}")
    if tiers_of(scenario) == 2 and not scenario.sync.tier1.declared.waits:
        problem = (
            f"with '{scenario.sync.tier1.kind}' inside data centres, gradients of several workers go up as one sum"
        )
        yield Violation(where, problem, "write 'paradigm: ps', or 'sync: mixedsync'")
    if scenario.recovery.on_failure == "continue":
        problem = "a gradient has no norm if its worker is lost before all parameters have arrived"
        yield Violation(where, problem, f"write 'on_failure: restart'{on_workers}")
