"""Which techniques go together: one table, read by the validator, the tests and the documentation.

A technique that no table names does not exist here and is refused as "not one of …". What this table adds are the
combinations of techniques that each exist, and the reason why they are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.policy.collective import CODECS as ALL_REDUCE_CODECS
from testbed.policy.collective.peers import LIBRARIES
from testbed.policy.events import Contribution
from testbed.policy.gossip import CODECS as GOSSIP_CODECS
from testbed.policy.order.dgt import MAX_BLOCK_BYTES
from testbed.policy.sync import SYNC
from testbed.scenario.faults import MEMBER_KINDS, PACKET_KINDS, leaving_problems
from testbed.scenario.rules import Violation
from testbed.scenario.sync_rules import ASYNCHRONOUS, sync_problems
from testbed.training.options.checks import optimizer_problems, split_problems

if TYPE_CHECKING:
    from testbed.scenario.schema import Scenario


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A combination that is refused: ``at`` is the key that the message points to."""

    at: tuple[str, ...]
    applies: Callable[[Scenario], bool]
    reason: str
    hint: str


def _serverless(scenario: Scenario) -> bool:
    return bool(scenario.paradigm.trait("tiers") == 0)


def _sites(scenario: Scenario) -> tuple[Any, ...]:
    return scenario.topology.data_centers


def _not_kept(scenario: Scenario) -> list[str]:
    """The axes whose value has a memory that checkpoints do not hold."""
    codecs, overlays = scenario.codec, scenario.overlay
    reasons = {
        "paradigm": _serverless(scenario),
        "codec": any(codec.kind not in ("none", "fp16") for codec in (codecs.tier1, codecs.tier2)),
        "overlay": any(overlay.kind != "star" for overlay in (overlays.tier1, overlays.tier2)),
        "workload": scenario.training.model.kind == "script",
        "order": scenario.order.kind == "dgt" or scenario.order.options().get("overlap") == "layers",
    }
    return [axis for axis, has_memory in reasons.items() if has_memory]


def _cannot_go_on(scenario: Scenario) -> list[str]:
    """The axes whose value cannot do without a node in mid-run."""
    overlays = scenario.overlay
    reasons = {
        "paradigm": scenario.paradigm.trait("tiers") == 0,
        "overlay": any(overlay.kind != "star" for overlay in (overlays.tier1, overlays.tier2)),
        "order": scenario.order.kind == "dgt" or scenario.order.options().get("overlap") == "layers",
        "checkpoint": scenario.checkpoint.every > 0,
        "optimizer": scenario.optimizer.options().get("at") == "worker"
        and SYNC[scenario.sync.tier1.kind].contribution is Contribution.GRADIENT,
        "sync": scenario.paradigm.kind == "hips"
        and scenario.sync.tier2.kind == "ssp"
        and scenario.sync.tier1.kind in ("tap", "ssp"),
        "workload": scenario.training.model.kind == "script",
        "data_centers[*].global_servers": any((site.global_servers or 1) > 1 for site in _sites(scenario)),
        "training.loading": any(scenario.training.loading.options().get(from_) for from_ in ("spread", "source")),
    }
    return [axis for axis, stuck in reasons.items() if stuck]


def _may_be_followed(scenario: Scenario) -> bool:
    return (
        scenario.recovery.on_failure == "continue"
        and scenario.paradigm.trait("tiers") in (1, 2)
        and scenario.sync.tier2.kind in ("fsa", "bsp", "hfa", "diloco")
        and scenario.codec.tier2.kind in ("none", "fp16")
    )


REFUSED: tuple[Incompatibility, ...] = (
    Incompatibility(
        ("recovery", "on_failure"),
        lambda scenario: scenario.recovery.on_failure == "continue" and bool(_cannot_go_on(scenario)),
        "the others cannot go on without a node here",
        "write 'restart', or paradigm: hips or ps, overlay: star, order: fifo or p3, ssp on one tier at most, one "
        "global server, gradients for its optimizer, no checkpoints, no samples of other workers",
    ),
    Incompatibility(
        ("recovery", "replicas"),
        lambda scenario: scenario.recovery.replicas > 0 and not _may_be_followed(scenario),
        "a replica makes the steps of one global server that waits for all, with codecs that remember nothing",
        "write 0, or on_failure: continue, with sync: fsa, bsp, hfa or diloco, and on tier 2 codec: none or fp16",
    ),
    Incompatibility(
        ("faults",),
        lambda scenario: scenario.run.on == "local" and any(fault.hits_links for fault in scenario.faults),
        "hit links, and loopback has none",
        "write 'on: emulate' or 'simulate', or let nodes fail",
    ),
    Incompatibility(
        ("faults",),
        lambda scenario: (
            scenario.recovery.on_failure != "continue" and any(fault.kind in MEMBER_KINDS for fault in scenario.faults)
        ),
        "of kind 'join' or 'leave' need a run whose members may change",
        "write 'recovery: {on_failure: continue}'",
    ),
    Incompatibility(
        ("faults",),
        lambda scenario: scenario.run.on == "simulate" and any(fault.kind in PACKET_KINDS for fault in scenario.faults),
        "duplicate packets or change their order, and in virtual time data flow without packets",
        "write 'on: emulate', or leave them out",
    ),
    Incompatibility(
        ("faults",),
        lambda scenario: (
            scenario.training.compute == "modelled" and any(fault.kind == "nan" for fault in scenario.faults)
        ),
        "of kind 'nan' need values, and training.compute is 'modelled'",
        "remove them",
    ),
    Incompatibility(
        ("faults",),
        lambda scenario: scenario.checkpoint.every == 0 and any(fault.kind == "disk_full" for fault in scenario.faults),
        "of kind 'disk_full' hit checkpoints, and this run keeps none",
        "write 'checkpoint: {every: 10}'",
    ),
    Incompatibility(
        ("recovery", "on_nan"),
        lambda scenario: (
            scenario.recovery.on_nan == "skip"
            and (_serverless(scenario) or scenario.order.options().get("overlap") == "layers")
        ),
        "leaves a whole gradient out, and here it is on its way in parts, or to no server",
        "write 'abort'",
    ),
    Incompatibility(
        ("workload",),
        lambda scenario: (
            scenario.training.model.kind == "script"
            and (_serverless(scenario) or any(not site.workers for site in _sites(scenario)))
        ),
        "a script trains on every worker, through the servers",
        "write 'paradigm: hips' or 'ps', and give the central data centre workers",
    ),
    Incompatibility(
        ("order",),
        lambda scenario: (
            scenario.training.model.kind == "script" and scenario.order.options().get("overlap") == "layers"
        ),
        "'overlap: layers' cuts a step at its layers, and a script's step is the script's own",
        "write 'overlap: none'; slices and priorities work all the same",
    ),
    Incompatibility(
        ("sync", "tier2", "staleness"),
        lambda scenario: (
            scenario.training.model.kind == "script"
            and scenario.paradigm.trait("tiers") == 2
            and scenario.sync.tier1.kind in ASYNCHRONOUS
            and scenario.sync.tier2.options().get("staleness") == 0
        ),
        "a script may end when it likes, and those beside it would then wait with half of a round of their data centre",
        "write 1 or more, or 'sync: fsa', or 'paradigm: ps'",
    ),
    Incompatibility(
        ("sync",),
        lambda scenario: _serverless(scenario) and {scenario.sync.tier1.kind, scenario.sync.tier2.kind} != {"fsa"},
        "has no effect without servers: all-reduce waits for all, and gossip has its own algorithm",
        "remove it, or write 'paradigm: hips'",
    ),
    Incompatibility(
        ("codec",),
        lambda scenario: scenario.paradigm.kind == "allreduce" and scenario.codec.tier2.kind not in ALL_REDUCE_CODECS,
        "this codec has a memory per server, and without servers there is none",
        f"all-reduce takes {' or '.join(ALL_REDUCE_CODECS)}; 'algorithm: hitopk' is sparse by itself",
    ),
    Incompatibility(
        ("codec",),
        lambda scenario: scenario.paradigm.kind == "gossip" and scenario.codec.tier2.kind not in GOSSIP_CODECS,
        "gossip averages models, and what a codec takes from them would be missing in the average for good",
        "write 'codec: none'",
    ),
    *(
        Incompatibility(
            ("codec", tier),
            lambda scenario, tier=tier: (  # type: ignore[misc]
                SYNC[scenario.sync.tier1.kind].contribution is Contribution.MODEL
                and not _serverless(scenario)
                and getattr(scenario.codec, tier).kind not in ("none", "fp16")
            ),
            "here models travel up, not gradients, and this codec keeps back what it does not send",
            "write 'codec: fp16' or 'none', or 'sync: diloco', which sends differences of models",
        )
        for tier in ("tier1", "tier2")
    ),
    Incompatibility(
        ("shard",),
        lambda scenario: _serverless(scenario) and scenario.shard.kind != "hashed",
        "places keys on servers, and without servers it has no effect",
        "remove it, or write 'paradigm: hips'",
    ),
    Incompatibility(
        ("codec",),
        lambda scenario: scenario.paradigm.kind in LIBRARIES and scenario.codec.tier2.kind != "none",
        "a library sums what workers hold, as it is",
        "write 'codec: none'",
    ),
    Incompatibility(
        ("paradigm",),
        lambda scenario: scenario.paradigm.kind in LIBRARIES and scenario.run.on == "simulate",
        "a library moves its bytes over sockets of its own, which virtual time does not see",
        "run it 'on: emulate' or 'on: local', or simulate 'paradigm: {kind: allreduce, algorithm: ring}'",
    ),
    Incompatibility(
        ("order",),
        lambda scenario: _serverless(scenario) and scenario.order.kind != "fifo",
        "orders what goes to servers, and without servers it has no effect",
        "remove it, or write 'paradigm: hips'",
    ),
    Incompatibility(
        ("overlay",),
        lambda scenario: (
            _serverless(scenario) and {scenario.overlay.tier1.kind, scenario.overlay.tier2.kind} != {"star"}
        ),
        "relays what goes to servers, and without servers it has no effect",
        "remove it, or write 'paradigm: hips'",
    ),
    Incompatibility(
        ("training", "compute"),
        lambda scenario: scenario.training.compute == "modelled" and scenario.run.on != "simulate",
        "'modelled' computes nothing, and real processes need values",
        "write 'real', or run it with 'on: simulate'",
    ),
    Incompatibility(
        ("training", "compute"),
        lambda scenario: scenario.training.compute == "real" and scenario.training.model.trait("takes") == "none",
        "'real' needs a model with values, and this one has only shapes",
        "write 'modelled', and run it with 'on: simulate'",
    ),
    Incompatibility(
        ("codec", "tier2"),
        lambda scenario: (
            scenario.optimizer.options().get("at") == "worker"
            and scenario.sync.tier1.kind in ("fsa", "bsp")
            and scenario.codec.tier2.options().get("pull") == "difference"
        ),
        "'pull: difference' follows parameters, and with the optimizer on the workers sums of gradients come down",
        "write 'pull: sparse-sum'",
    ),
    Incompatibility(
        ("order",),
        lambda scenario: (
            scenario.order.options().get("overlap") == "layers"
            and (
                SYNC[scenario.sync.tier1.kind].contribution is not Contribution.GRADIENT
                or scenario.optimizer.options().get("at") == "worker"
            )
        ),
        "'overlap: layers' begins the next forward pass layer by layer, with values that come down ready to use; "
        "here workers update their own model, all of it at once",
        "write 'overlap: none'; slices and priorities work all the same",
    ),
    *(
        Incompatibility(
            ("overlay", tier),
            lambda scenario, tier=tier: (  # type: ignore[misc]
                getattr(scenario.overlay, tier).kind != "star"
                and getattr(scenario.sync, tier).kind in ("tap", "ssp", "mixedsync")
            ),
            "contributions are merged on their way, and here each is applied by itself, as it comes",
            "write 'star', or an algorithm that waits for all, such as 'sync: fsa'",
        )
        for tier in ("tier1", "tier2")
    ),
    *(
        Incompatibility(
            ("overlay", tier),
            lambda scenario, tier=tier: (  # type: ignore[misc]
                getattr(scenario.overlay, tier).options().get("merge") == "sum"
                and getattr(scenario.codec, tier).kind not in ("none", "fp16")
            ),
            "'merge: sum' adds up on the way, and sums of what this codec makes cannot be sent in it",
            "write 'merge: exact', or 'codec: fp16' or 'none'",
        )
        for tier in ("tier1", "tier2")
    ),
    Incompatibility(
        ("overlay", "tier2"),
        lambda scenario: scenario.order.kind == "dgt" and scenario.overlay.tier2.kind != "star",
        "DGT's blocks go straight to the global servers, some of them unreliably; nobody can merge them on the way",
        "write 'overlay: {tier1: …, tier2: star}'",
    ),
    Incompatibility(
        ("checkpoint", "every"),
        lambda scenario: scenario.checkpoint.every > 0 and bool(_not_kept(scenario)),
        "the memory of this technique (residuals, measured rates, half a round) is not in a checkpoint yet",
        "write 'every: 0', or codec: none or fp16, overlay: star, order without overlap or dgt, paradigm: hips or ps",
    ),
    Incompatibility(
        ("order",),
        lambda scenario: scenario.order.kind == "dgt" and scenario.codec.tier2.kind not in ("none", "fp16"),
        "dgt cuts dense payloads into blocks, and what this codec sends on tier 2 means something only as a whole",
        "write 'codec: {tier1: …, tier2: none}' or 'tier2: fp16'",
    ),
    Incompatibility(
        ("order",),
        lambda scenario: (
            scenario.order.kind == "dgt"
            and SYNC[scenario.sync.tier1.kind].contribution is Contribution.MODEL
            and (scenario.order.options()["late"] != "retransmit" or scenario.order.options()["code"] != "exact")
        ),
        "here models travel up, not gradients: a block that is lost would set parameters to zero",
        "write 'late: retransmit' and 'code: exact'",
    ),
    Incompatibility(
        ("order", "k_min"),
        lambda scenario: (
            scenario.order.kind == "dgt" and scenario.order.options()["k_min"] > scenario.order.options()["k"]
        ),
        "is larger than order.k, so that k could never follow the loss",
        "write a smaller k_min, or a larger k",
    ),
    Incompatibility(
        ("order", "block"),
        lambda scenario: (
            scenario.order.kind == "dgt"
            and not (
                scenario.order.options()["block"] % 4 == 0 and 4 <= scenario.order.options()["block"] <= MAX_BLOCK_BYTES
            )
        ),
        f"a block holds whole float32 elements, and {MAX_BLOCK_BYTES} bytes at most",
        "write 4096 bytes",
    ),
    Incompatibility(
        ("training", "loading"),
        lambda scenario: (
            scenario.training.loading.kind == "cached"
            and (scenario.training.compute == "modelled" or scenario.training.model.kind == "script")
        ),
        "there are no samples to load: nothing is computed, or the script has its own data",
        "remove it",
    ),
    Incompatibility(
        ("training", "loading"),
        lambda scenario: (
            scenario.training.loading.kind == "cached" and scenario.order.options().get("overlap") == "layers"
        ),
        "'overlap: layers' begins a step before its batch can be waited for",
        "write 'overlap: none'",
    ),
    Incompatibility(
        ("training", "loading", "source"),
        lambda scenario: (
            bool(source := scenario.training.loading.options().get("source"))
            and source not in {site.name for site in _sites(scenario) if site.workers or site.central}
        ),
        "is no data centre with a worker",
        "name one that has, or leave it out for a store beside every worker",
    ),
    Incompatibility(
        ("training", "target_accuracy"),
        lambda scenario: scenario.training.compute == "modelled" and scenario.training.target_accuracy is not None,
        "has no effect when training.compute is 'modelled'",
        "there is no accuracy without values; remove it",
    ),
)


def technique_problems(scenario: Scenario) -> list[Violation]:
    """What ``REFUSED`` and the rules of single axes say of a scenario."""
    refused = [Violation(entry.at, entry.reason, entry.hint) for entry in REFUSED if entry.applies(scenario)]
    return [*refused, *leaving_problems(scenario), *sync_problems(scenario), *job_rules(scenario)]


def job_rules(scenario: Scenario) -> list[Violation]:
    """What the training job itself refuses: data that do not fit the model, options without effect."""
    training, optimizer = scenario.training, scenario.optimizer
    split = split_problems(training.split.kind, training.split.options())
    steps = optimizer_problems(optimizer.kind, optimizer.options())
    return [
        *(Violation(("training", "split", *at), problem, hint) for at, problem, hint in split),
        *(Violation(("optimizer", *at), problem, hint) for at, problem, hint in steps),
    ]
