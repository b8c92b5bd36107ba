"""Tells which candidates learn alike in each round, so that one training shows the learning curve of all of them.

What a synchronous technique learns in a round does not depend on the network, so it is trained over an ideal network,
at a fraction of the cost. These properties follow from the declarations of techniques.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from testbed.codec.options import CODECS
from testbed.paradigms import PARADIGMS
from testbed.plan.asynchronous import is_asynchronous
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import SyncPolicy
from testbed.policy.sync.streaming import Streaming
from testbed.settings.job import Choice


def depends_on_network(plan: Plan) -> bool:
    """Return whether learning in a round depends on times: which push comes first, the number of steps, lost blocks."""
    technique = plan.technique
    if is_asynchronous(plan) or ORDERS[technique.order.kind].best_effort:
        return True
    return any(_is_timed(choice) for choice in _syncs(plan))


def _is_timed(choice: Choice) -> bool:
    declared = SYNC[choice.kind]
    streaming = declared.streaming(SYNC.options(choice.kind, choice.options))
    return declared.assigns_steps or declared.needs_reports or streaming is not None


def _syncs(plan: Plan) -> list[Choice]:
    """Return the synchronisation algorithms of both tiers."""
    technique = plan.technique
    return [technique.sync_tier1, technique.sync_tier2]


def is_plain(plan: Plan) -> bool:
    """Return whether every round is one step with the exact mean gradient of all workers."""
    technique = plan.technique
    paradigm = PARADIGMS[technique.paradigm.kind]
    options = PARADIGMS.options(technique.paradigm.kind, technique.paradigm.options)
    return (
        not depends_on_network(plan)
        and paradigm.global_sum
        and not paradigm.models
        and not paradigm.sparse(options)
        and all(CODECS[codec.kind].exact for codec in (technique.codec_tier1, technique.codec_tier2))
        and all(_is_every_step(choice) for choice in _syncs(plan))
    )


def _is_every_step(choice: Choice) -> bool:
    declared = SYNC[choice.kind]
    options = SYNC.options(choice.kind, choice.options)
    return (
        declared.contribution is Contribution.GRADIENT
        and declared.lan_rounds(options) == 1
        and declared.local_steps(options, 0) == 1
    )


def signature(plan: Plan) -> str:
    """Return a text that is equal for Plans that learn alike in each round, up to the rounding of sums."""
    technique = plan.technique
    if plan.pipeline is not None:  # schedule, placement and cut do not change what is learned
        return repr((technique, plan.pipeline.stages, plan.pipeline.micro_batches))
    if depends_on_network(plan):
        return repr(technique)
    if is_plain(plan):
        optimizer = {name: value for name, value in technique.optimizer.options.items() if name != "at"}
        return repr(("mean gradient", technique.optimizer.kind, optimizer))
    codecs = [CODECS[codec.kind] for codec in (technique.codec_tier1, technique.codec_tier2)]
    irrelevant: dict[str, Any] = {"overlay_tier1": None, "overlay_tier2": None}
    if all(codec.elementwise or codec.dense for codec in codecs):
        irrelevant |= {"order": None, "shard": None}
    return repr(replace(technique, **irrelevant))


def trained_alone(plan: Plan) -> Plan:
    """Return the cheapest Plan that learns as this one: over an ideal network, unless learning depends on times."""
    if depends_on_network(plan):
        return plan
    return replace(plan, simulation=replace(plan.simulation, network="ideal"))


def ahead(plan: Plan) -> int:
    """Return how many rounds a worker may be ahead of the values that it waits for: its first rounds are so short."""
    most = 0
    for declared, options, streaming in _declared(plan):
        is_late = streaming is not None and streaming.overlap_steps > 0
        most = max(most, declared.most_ahead(options), int(is_late))
    return most


def period(plan: Plan) -> int:
    """Return after how many rounds the sizes of messages repeat: LAN rounds per WAN round, or fragments to stream."""
    rounds = 1
    for declared, options, streaming in _declared(plan):
        rounds = max(rounds, declared.lan_rounds(options), streaming.fragments if streaming is not None else 1)
    return rounds


def _declared(plan: Plan) -> Iterator[tuple[type[SyncPolicy], Any, Streaming | None]]:
    """Yield each tier's synchronisation algorithm, its options, and how it streams fragments (``None`` if not)."""
    for choice in _syncs(plan):
        algorithm = SYNC[choice.kind]
        options = SYNC.options(choice.kind, choice.options)
        yield algorithm, options, algorithm.streaming(options)
