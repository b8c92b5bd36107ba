"""Rules of paradigms without servers: what has no effect there, and which codecs they take."""

from __future__ import annotations

from typing import Any

from testbed.codec.options import CODECS
from testbed.policy.collective import SPARSE
from testbed.policy.collective.overlap import AFTERWARDS
from testbed.policy.events import Contribution
from testbed.policy.gossip import ALGORITHMS
from testbed.policy.sync import SYNC
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    by_tier,
    kinds,
    lan_rounds_option,
    overlaps,
    pushed,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.graphs import generated
from testbed.training.options import OPTIMIZERS

_SHOWN = 8  # of the data centres, in a message
_REMOVE = f"remove it, or write 'paradigm: {PARADIGMS.default}'"


def workers_exchange_in_rounds(scenario: Scenario) -> Found:
    unfit = [tier.kind for _, tier in by_tier(scenario.sync) if not tier.declared.waits]
    if without_servers(scenario) and unfit:
        pairs = [kind for kind, each in ALGORITHMS.items() if each.pairwise]
        yield Violation(
            ("sync",),
            "a server applies each push by itself, as it comes, and there is none: what workers exchange is of a round",
            f"write 'sync: {SYNC.default}' (with 'paradigm: {{kind: gossip, algorithm: {pairs[0]}}}' no worker waits "
            f"for all), or 'paradigm: {PARADIGMS.default}'",
        )


def changes_follow_the_last_step(scenario: Scenario) -> Found:
    overlap = getattr(scenario.paradigm.options, "overlap", AFTERWARDS)
    if without_servers(scenario) and overlap != AFTERWARDS and pushed(scenario) is not Contribution.GRADIENT:
        yield Violation(
            ("paradigm", "overlap"),
            f"'{overlap}' sums gradients during a backward pass, and how far local steps move a model is known after "
            "the last of them",
            f"write '{AFTERWARDS}'",
        )


def libraries_sum_over_all(scenario: Scenario) -> Found:
    option = lan_rounds_option(scenario.sync.tier2) if scenario.paradigm.declared.library else ""
    if option:
        problem = "counts rounds inside a data centre, and a library's sums are over all workers"
        yield Violation(("sync", "tier2", option), problem, f"write '{option}: 1'")


def pairs_balance_nothing(scenario: Scenario) -> Found:
    algorithm = ALGORITHMS.get(getattr(scenario.paradigm.options, "algorithm", ""))
    if algorithm and algorithm.pairwise and without_servers(scenario) and scenario.sync.tier1.declared.assigns_steps:
        others = [kind for kind, each in ALGORITHMS.items() if not each.pairwise]
        yield Violation(
            ("sync",),
            f"'{scenario.sync.tier1.kind}' lets fast workers step until the slowest one's push arrives, and pairs wait "
            "for no other worker",
            f"write 'algorithm: {others[0]}', or sync: "
            f"{kinds(SYNC, lambda sync: sync.waits and not sync.assigns_steps)}",
        )


def codec_of_paradigm(scenario: Scenario) -> Found:
    paradigm = scenario.paradigm
    if not _any_chosen(scenario, "codec"):
        return
    if not paradigm.declared.codecs:
        problem = "a library sums the values of workers as they are"
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}'")
    if getattr(paradigm.options, "algorithm", "") in SPARSE:
        problem = f"'algorithm: {paradigm.options.algorithm}' chooses by itself what is sent"
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}', or another algorithm")


def codecs_of_models_add_up(scenario: Scenario) -> Found:
    codec = scenario.codec.tier2
    plain = codec.declared.to_add_up(codec.options)
    if without_servers(scenario) and scenario.paradigm.declared.models and plain:
        yield Violation(
            ("codec",),
            "changes of models are sent, and what this codec sends and keeps back must add up to them",
            f"write '{', '.join(f'{name}: {value}' for name, value in plain.items())}'",
        )


def pairs_exchange_whole_models(scenario: Scenario) -> Found:
    algorithm = ALGORITHMS.get(getattr(scenario.paradigm.options, "algorithm", ""))
    if (
        scenario.paradigm.declared.models
        and algorithm
        and algorithm.pairwise
        and scenario.codec.tier2.kind != CODECS.default
    ):
        problem = "a pair of workers moves by the difference of its models, which both must know exactly"
        yield Violation(("codec",), problem, f"write 'codec: {CODECS.default}', or an algorithm that mixes in rounds")


def equal_ranks_are_in_all_data_centers(scenario: Scenario) -> Found:
    """The names of a generator's data centres are made for this rule: it may have some without workers."""
    name = getattr(scenario.paradigm.options, "algorithm", "")
    if name not in SPARSE or not SPARSE[name].hierarchical:
        return
    sizes = _workers(scenario)
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{site}: {count}" for site, count in [*sizes.items()][:_SHOWN])
        flat = next(kind for kind, each in SPARSE.items() if not each.hierarchical)
        problem = f"'{name}' sums over the workers of one number in all data centres, which differ in size ({shown})"
        yield Violation(("paradigm", "algorithm"), problem, f"write as many workers in each, or 'algorithm: {flat}'")


def magnitudes_need_values(scenario: Scenario) -> Found:
    if getattr(scenario.paradigm.options, "coordinated", False) and scenario.training.compute == "modelled":
        yield Violation(
            ("paradigm", "coordinated"),
            "compares magnitudes, and with training.compute 'modelled' tensors have no numbers",
            "write false, or 'compute: real'",
        )


def shared_work_is_of_norms(scenario: Scenario) -> Found:
    options = scenario.paradigm.options
    if getattr(options, "optimizer_work", "replicated") == "replicated":
        return
    if not _stepped_with(scenario).whole_tensors:
        if options.optimizer_work == "norms":
            fitting = kinds(OPTIMIZERS, lambda each: each.whole_tensors)
            problem = "'norms' are taken once for all workers, and the steps of this optimizer need none"
            yield Violation(("paradigm", "optimizer_work"), problem, f"write 'update', or 'optimizer: {fitting}'")
    elif options.shared_by == "data_center" and len(set(_workers(scenario).values())) > 1:
        yield Violation(
            ("paradigm", "shared_by"),
            "data centres differ in size: each would cut tensors at other places, and norms differ in their last bits",
            "write 'shared_by: all'",
        )


def _stepped_with(scenario: Scenario) -> type[Any]:
    """Return the optimizer that every worker steps with after an exchange, as the engine chooses it."""
    sync = scenario.sync.tier1
    if sync.declared.contribution is Contribution.GRADIENT:
        return scenario.optimizer.declared
    outer = sync.declared.outer_optimizer(sync.options)
    return OPTIMIZERS[outer[0] if outer else "sgd"]


def _workers(scenario: Scenario) -> dict[str, int]:
    """Return how many workers each data centre has, of those with some."""
    return {site.name: site.workers for site in generated(scenario.topology).data_centers if site.workers}


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
