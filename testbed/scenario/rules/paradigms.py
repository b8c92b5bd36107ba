"""Rules of paradigms: settings without effect if there are no servers, suitable codecs, and sums in a data centre."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from testbed.codec.options import CODECS
from testbed.paradigms import PARADIGMS
from testbed.policy.collective import SPARSE
from testbed.policy.collective.options import AFTERWARDS, INSIDE, SERVERS, inside_of
from testbed.policy.events import Contribution
from testbed.policy.gossip import ALGORITHMS, GossipOptions
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.axes import PerTier, Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    is_scripted,
    kinds,
    lan_rounds_option,
    outer_of,
    overlaps,
    pulls_rows,
    pushed,
    tiers_of,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import generated
from testbed.training.options import OPTIMIZERS

_TO_SERVERS = {
    "shard": "the placement of keys on",
    "order": "the order of the slices that are sent to",
    "overlay": "the relaying of contributions to",
    "aggregation": "the combining of contributions at",
}
_SHOWN = 8  # so many data centres are listed in a message
_REMOVE = f"remove it, or write 'paradigm: {PARADIGMS.default}'"


def workers_exchange_in_rounds(scenario: Scenario) -> Found:
    unfit = [tier.kind for _, tier in scenario.sync if not tier.declared.waits]
    if without_servers(scenario) and unfit:
        pairs = [kind for kind, each in ALGORITHMS.items() if each.pairwise]
        yield Violation(
            ("sync",),
            "its servers apply each worker's push as it arrives, but this paradigm has no servers: its workers "
            "exchange with each other, in rounds that all make together",
            f"write 'sync: {SYNC.default}' (with 'paradigm: {{kind: gossip, algorithm: {pairs[0]}}}' no worker waits "
            f"for all), or 'paradigm: {PARADIGMS.default}'",
        )


def changes_follow_the_last_step(scenario: Scenario) -> Found:
    overlap = getattr(scenario.paradigm.options, "overlap", AFTERWARDS)
    if without_servers(scenario) and overlap != AFTERWARDS and pushed(scenario) is not Contribution.GRADIENT:
        yield Violation(
            ("paradigm", "overlap"),
            f"'{overlap}' sums gradients during a backward pass, but how far local steps move a model is known only "
            "after the last step",
            f"write '{AFTERWARDS}'",
        )


def libraries_sum_over_all(scenario: Scenario) -> Found:
    if not scenario.paradigm.declared.library:
        return
    if option := lan_rounds_option(scenario.sync.tier2):
        problem = "counts rounds inside a data centre, but a library sums over all workers"
        yield Violation(("sync", "tier2", option), problem, f"write '{option}: 1'")
    if not scenario.run.facilities.has_processes:
        yield Violation(
            ("paradigm",),
            "a library opens its own sockets, whose bytes virtual time cannot see",
            "run it 'on: emulate' or 'on: local', or simulate 'paradigm: {kind: allreduce, algorithm: ring}'",
        )


def pairs_wait_for_no_other_worker(scenario: Scenario) -> Found:
    algorithm = ALGORITHMS.get(getattr(scenario.paradigm.options, "algorithm", ""))
    if not scenario.paradigm.declared.models or algorithm is None:
        return
    if algorithm.pairwise and scenario.sync.tier1.declared.assigns_steps:
        others = [kind for kind, each in ALGORITHMS.items() if not each.pairwise]
        yield Violation(
            ("sync",),
            f"'{scenario.sync.tier1.kind}' lets fast workers step until the slowest one's push arrives, but pairs do "
            "not wait for other workers",
            f"write 'algorithm: {others[0]}', or sync: "
            f"{kinds(SYNC, lambda sync: sync.waits and not sync.assigns_steps)}",
        )
    if algorithm.changes and pushed(scenario) is Contribution.GRADIENT:
        local = kinds(SYNC, lambda sync: sync.waits and sync.contribution is not Contribution.GRADIENT)
        problem = "averages the changes that local steps make, but here each step follows one gradient"
        yield Violation(("paradigm", "algorithm"), problem, f"write sync: {local}, or another algorithm")
    if (algorithm.pairwise or algorithm.changes) and scenario.codec.tier2.kind != CODECS.default:
        problem = "a pair of workers moves by the difference of its models, which both must know exactly"
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}', or an algorithm that mixes in rounds")


def codec_of_paradigm(scenario: Scenario) -> Found:
    paradigm = scenario.paradigm
    if not _any_chosen(scenario, "codec"):
        return
    if not paradigm.declared.codecs:
        problem = "the values of workers travel as they are"
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}'")
    if getattr(paradigm.options, "algorithm", "") in SPARSE:
        problem = f"'algorithm: {paradigm.options.algorithm}' chooses by itself what is sent"
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}', or another algorithm")


def models_have_no_shape(scenario: Scenario) -> Found:
    codec = scenario.codec.tier2
    if without_servers(scenario) and scenario.paradigm.declared.models and codec.declared.by_shape:
        others = kinds(CODECS, lambda each: not each.by_shape)
        problem = (
            f"workers send each other whole models as one tensor, but '{codec.kind}' depends on the shapes of tensors"
        )
        yield Violation(("codec",), problem, f"write codec: {others}")


def codecs_of_models_add_up(scenario: Scenario) -> Found:
    codec = scenario.codec.tier2
    plain = codec.declared.to_add_up(codec.options)
    if without_servers(scenario) and scenario.paradigm.declared.models and plain:
        yield Violation(
            ("codec",),
            "changes of models are sent, and what this codec sends and keeps back must add up to them",
            f"write '{', '.join(f'{name}: {value}' for name, value in plain.items())}'",
        )


def gossip_options_have_an_effect(scenario: Scenario) -> Found:
    paradigm = scenario.paradigm
    if not isinstance(paradigm.options, GossipOptions):
        return
    if paradigm.options.step and scenario.codec.tier2.declared.exact:
        problem = "slows down the mixing of models that pass through a codec, but here none is chosen"
        yield Violation(("paradigm", "step"), problem, "write 'step: 0', or choose a codec")
    default = type(paradigm.options)().gradients
    if paradigm.options.gradients != default and pushed(scenario) is not Contribution.GRADIENT:
        problem = f"sets the weight of a gradient, but with '{scenario.sync.tier1.kind}' workers mix whole models"
        yield Violation(("paradigm", "gradients"), problem, f"write '{default}'")


def equal_ranks_are_in_all_data_centers(scenario: Scenario) -> Found:
    """This rule writes generated topologies out, as some of their data centres may have no workers."""
    name = getattr(scenario.paradigm.options, "algorithm", "")
    if name not in SPARSE or not SPARSE[name].hierarchical:
        return
    sizes = _workers(scenario)
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{site}: {count}" for site, count in [*sizes.items()][:_SHOWN])
        flat = next(kind for kind, each in SPARSE.items() if not each.hierarchical)
        problem = f"'{name}' sums over equally numbered workers of all data centres, but these differ in size ({shown})"
        yield Violation(("paradigm", "algorithm"), problem, f"write as many workers in each, or 'algorithm: {flat}'")


def shared_work_is_of_norms(scenario: Scenario) -> Found:
    options = scenario.paradigm.options
    if getattr(options, "optimizer_work", "replicated") == "replicated":
        return
    kind = _stepped_with(scenario)
    if not OPTIMIZERS[kind].whole_tensors:
        if options.optimizer_work == "norms":
            fitting = kinds(OPTIMIZERS, lambda each: each.by_norms)
            problem = "'norms' computes norms once for all workers, but this optimizer needs none"
            yield Violation(("paradigm", "optimizer_work"), problem, f"write 'update', or 'optimizer: {fitting}'")
    elif not OPTIMIZERS[kind].by_norms:
        problem = f"workers share norms of whole tensors, but '{kind}' needs more than norms of a tensor"
        yield Violation(("paradigm", "optimizer_work"), problem, "write 'replicated'")
    elif options.shared_by == "data_center" and len(set(_workers(scenario).values())) > 1:
        yield Violation(
            ("paradigm", "shared_by"),
            "data centres differ in size: each would cut tensors elsewhere, and norms would differ in their last bits",
            "write 'shared_by: all'",
        )


def _stepped_with(scenario: Scenario) -> str:
    """Return the kind of optimizer that every worker steps with after an exchange, as the engine chooses it."""
    if pushed(scenario) is Contribution.GRADIENT:
        return scenario.optimizer.kind
    outer = outer_of(scenario)
    return outer[0] if outer else "sgd"


def _workers(scenario: Scenario) -> dict[str, int]:
    """Return the number of workers of each data centre that has any."""
    return {site.name: site.workers for site in generated(scenario.topology).data_centers if site.workers}


def ways_to_servers_need_servers(scenario: Scenario) -> Found:
    if not without_servers(scenario):
        return
    for axis, does in _TO_SERVERS.items():
        if _any_chosen(scenario, axis):
            yield Violation((axis,), f"{does} servers has no effect, as there are none", _REMOVE)
    for name in () if _any_chosen(scenario, "order") else _chosen_options(scenario.order):
        if name != "overlap":  # see below
            problem = f"{_TO_SERVERS['order']} servers has no effect, as there are none"
            yield Violation(("order", name), problem, _REMOVE)
    if overlaps(scenario) and not _any_chosen(scenario, "order"):
        problem = "'overlap: layers' sends layers to servers, so it has no effect without them"
        cure = ""
        if hasattr(scenario.paradigm.options, "overlap"):
            kind = scenario.paradigm.kind
            cure = f", and 'paradigm: {{kind: {kind}, overlap: buckets}}' to sum during the backward pass"
        yield Violation(("order",), problem, f"write 'overlap: none'{cure}")


def _any_chosen(scenario: Scenario, axis: str) -> bool:
    """Return whether ``axis`` has another kind than its default, on any tier."""
    value = getattr(scenario, axis)
    default: Any = next(field.default for field in fields(scenario) if field.name == axis)
    techniques = [technique for _, technique in value] if isinstance(value, PerTier) else [value]
    return any(technique.kind != default.kind for technique in techniques)


def _chosen_options(technique: Technique) -> list[str]:
    """Return the options whose values differ from their defaults."""
    options = technique.options
    return [option.name for option in fields(options) if getattr(options, option.name) != option.default]


def sums_inside_are_of_whole_rounds(scenario: Scenario) -> Found:
    inside = inside_of(asdict(scenario.paradigm.options))
    if inside is None:
        return
    for place, problem, cure in _unfit_inside(scenario) if tiers_of(scenario) == 2 else ():
        yield Violation(place, problem, f"write {cure}, or 'inside: {SERVERS}'")
    own = next(name for name, each in INSIDE.items() if not each.library)
    if inside.library and not scenario.run.facilities.has_processes:
        yield Violation(
            ("paradigm", "inside"),
            "a library opens its own sockets, whose bytes virtual time cannot see",
            f"write '{own}', which is simulated, or run it 'on: emulate' or 'on: local'",
        )
    if inside.library and scenario.transport.tls:
        opens = f"'inside: {scenario.paradigm.options.inside}' opens its own"
        problem = f"covers only the testbed's own connections, but {opens}"
        yield Violation(("transport", "tls"), problem, f"write 'inside: {own}', or tls: false")


def _unfit_inside(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str, str]]:
    sync = scenario.sync.tier1
    inside = scenario.paradigm.options.inside
    streaming = sync.declared.streaming(sync.options)
    if not sync.declared.waits or sync.declared.needs_reports:
        problem = f"'inside: {inside}' sums what all workers of a data centre have pushed, but"
        alone = "here they do not wait for each other"
        asked = f"'{sync.kind}' needs the time that each of them took"
        problem = f"{problem} {asked if sync.declared.waits else alone}"
        fitting = kinds(SYNC, lambda each: each.waits and not each.needs_reports and 1 in each.tiers)
        yield ("sync", "tier1"), problem, f"sync: {fitting}"
    elif streaming is not None:
        problem = f"'inside: {inside}' sums whole models, but fragments travel while steps go on"
        yield ("sync",), problem, f"sync: {{kind: {sync.kind}}} without fragments and overlap_steps"
    if scenario.codec.tier1.kind != CODECS.default:
        problem = f"'inside: {inside}' sums values without a codec"
        yield ("codec", "tier1"), problem, f"'tier1: {CODECS.default}'"
    if scenario.overlay.tier1.declared.relays:
        problem = f"'inside: {inside}' lets one worker of a data centre push for all, so there is nothing to relay"
        yield ("overlay", "tier1"), problem, f"'tier1: {OVERLAYS.default}'"
    if overlaps(scenario):
        problem = f"'inside: {inside}' sums after the whole backward pass"
        yield ("order",), problem, "'overlap: none'"
    if pulls_rows(scenario):
        problem = f"'rows': each worker asks for rows of its own, but with 'inside: {inside}' one pulls for all"
        yield ("paradigm", "pull"), problem, "'all'"
    if is_scripted(scenario):
        problem = f"a script pushes to its server at any time, but 'inside: {inside}' sums in rounds"
        yield ("workload",), problem, "a scenario with 'training'"
