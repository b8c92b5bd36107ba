"""Decisions: synchronisation, order, overlay, shard, all-reduce, gossip."""

from __future__ import annotations

from typing import Any

from tests.mutations.mutation import Change, Mutation, always, edit, instead

SYNC = ("tests/policy/test_sync.py",)
OVERLAYS, NETSTORM = ("tests/policy/overlay/test_overlays.py",), ("tests/policy/overlay/test_netstorm.py",)
SHARDS, GOSSIP = ("tests/policy/shard/test_shards.py",), ("tests/policy/gossip/test_mixing.py",)
SCHEDULES = ("tests/policy/collective/test_cost.py", "tests/policy/collective/test_schedules.py")
ORDER = ("tests/policy/order/test_dgt.py",)


def in_place_of(name: str, other: str) -> Change:
    """A table in which ``name`` has the entry of ``other``."""
    return lambda before: {**before, name: before[other]}


def algorithm(name: str, other: str) -> Mutation:
    return Mutation("testbed.policy.collective:ALL_REDUCE", in_place_of(name, other), SCHEDULES)


def _fixed_k(before: Any) -> Any:
    return lambda self, loss: self.k


MUTATIONS: dict[str, Mutation] = {
    "stretches of a ring are moved in one direction only": Mutation(
        "testbed.policy.collective.ring_order:_changes",
        edit("stretch[-1:] + stretch[:-1]", "stretch"),
        ("tests/policy/collective/test_ring_order.py",),
    ),
    "sparse all-reduce knows one selector": Mutation(
        "testbed.engine.collectives.sums:_memories",
        edit('if selector == "exact":', "if True:"),
        ("tests/engine/collectives/test_topk.py",),
    ),
    "FSA sums in reverse rank order": Mutation(
        "testbed.policy.sync.fsa:Fsa.on_push", edit("*where, begun.members", "*where, begun.members[::-1]"), SYNC
    ),
    "HFA crosses the WAN in another round": Mutation(
        "testbed.policy.sync.hfa:Hfa._combine", edit("(round_ + 1) %", "round_ %"), SYNC
    ),
    "SSP allows one round more": Mutation("testbed.policy.sync.ssp:Ssp._free", edit("< reach)", "<= reach)"), SYNC),
    "SSP forgets where a server that has joined begins": Mutation(
        "testbed.policy.sync.ssp:Ssp._first_pushes",
        edit("max(first.get(m, 0), self._first_round)", "first.get(m, self._first_round)"),
        ("tests/policy/test_membership.py",),
    ),
    "ESync rounds steps up": Mutation(
        "testbed.policy.sync.esync:_steps_within", edit("math.floor(", "math.ceil("), SYNC
    ),
    "ESync ignores the time of transfers": Mutation(
        "testbed.policy.sync.esync:balanced_steps", edit("reach_s - report.transfer_s", "reach_s"), SYNC
    ),
    "DiLoCo averages without an outer optimizer": Mutation(
        "testbed.policy.sync.diloco:DiLoCo.outer_optimizer",
        always(("sgd", {"learning_rate": 1.0})),
        ("tests/engine/sync/test_golden.py::test_dilocos_outer_step_has_nesterovs_momentum",),
    ),
    "TAP answers with the round before": Mutation(
        "testbed.policy.sync.asynchronous:Tap.on_push",
        edit("Reply(push.key, (push.round,)", "Reply(push.key, (0,)"),
        SYNC,
    ),
    "MixedSync on tier 1 too": Mutation("testbed.policy.sync.asynchronous:MixedSync.tiers", instead((1, 2)), SYNC),
    "BSP waits for one member": Mutation(
        "testbed.policy.sync.fsa:Fsa.on_push",
        edit("if begun.missing:", "if len(begun.missing) == len(begun.members):"),
        SYNC,
    ),
    "a member that joins begins a round late": Mutation(
        "testbed.policy.sync.fsa:Fsa.on_member_joined", edit("+ 1", "+ 2"), ("tests/policy/test_membership.py",)
    ),
    "TSEngine uses one link of a node at a time": Mutation(
        "testbed.policy.overlay.tsengine:TsEngine._is_best", always(False), ("tests/policy/overlay/test_overlays.py",)
    ),
    "ESync takes reports of workers that are lost from a checkpoint": Mutation(
        "testbed.policy.sync.esync:ESync.load_state", edit("if worker in self._reported_by:", "if True:"), SYNC
    ),
    "ESync notes a report once for each slice": Mutation(
        "testbed.policy.sync.esync:ESync.on_push", edit("if self._noted.get(worker) != push.round:", "if True:"), SYNC
    ),
    "ESync believes the latest report": Mutation("testbed.policy.sync.esync:RECENT", instead(1), SYNC),
    "DGT's k ignores the loss": Mutation("testbed.policy.order.dgt:Threshold.update", _fixed_k, ORDER),
    "DGT sends the last block by best effort": Mutation(
        "testbed.policy.order.dgt:channels_of", edit("result[-1] = RELIABLE", "result[-1] = 1"), ORDER
    ),
    "DGT's contribution forgets the past": Mutation(
        "testbed.policy.order.dgt:contribution", edit("alpha * old", "0 * old"), ORDER
    ),
    "P3 sends the last layer first": Mutation(
        "testbed.policy.order.p3:P3.priority", edit("return -key", "return key"), ("tests/engine/p3/test_p3.py",)
    ),
    "NetStorm never plans again": Mutation("testbed.policy.overlay.netstorm:NetStorm.revise", always(False), NETSTORM),
    "NetStorm takes no auxiliary route": Mutation(
        "testbed.policy.overlay.netstorm:Detours._chosen", edit("best if ", "to if "), NETSTORM
    ),
    "TSEngine prefers the slowest receiver": Mutation(
        "testbed.policy.overlay.tsengine:TsEngine._receiver", edit("return max(known", "return min(known"), OVERLAYS
    ),
    "TSEngine never forgets a measurement": Mutation(
        "testbed.policy.overlay.base:Throughput.get", edit("round_ - made <= self._expiry", "True"), OVERLAYS
    ),
    "a tree is a chain": Mutation("testbed.policy.overlay.tree:Tree.__init__", edit("options.degree,", "1,"), OVERLAYS),
    "hashed placement puts all keys on one server": Mutation(
        "testbed.policy.shard.hashed:HASH_FACTOR", instead(0), SHARDS
    ),
    "MultiGPS fills no server up": Mutation(
        "testbed.policy.shard.multigps:filling", instead(lambda levels, size: [size, *[0] * (len(levels) - 1)]), SHARDS
    ),
    "ring is direct": algorithm("ring", "direct"),
    "tree is binomial": algorithm("tree", "binomial_tree"),
    "binomial tree is a balanced tree": algorithm("binomial_tree", "tree"),
    "double binary tree is one tree": algorithm("double_binary_tree", "tree"),
    "butterfly is recursive doubling": algorithm("butterfly", "recursive_doubling"),
    "recursive doubling is butterfly": algorithm("recursive_doubling", "butterfly"),
    "binary blocks is a tree": algorithm("binary_blocks", "tree"),
    "direct is a ring": algorithm("direct", "ring"),
    "BlueConnect is a ring": algorithm("blueconnect", "ring"),
    "three-phase ring is a ring": algorithm("three_phase_ring", "ring"),
    "torus is a ring": algorithm("torus2d", "ring"),
    "gossip weights do not add up": Mutation(
        "testbed.policy.gossip.mixing:Metropolis.part", edit("max(len", "min(len"), GOSSIP
    ),
    "SGP pushes to the next only": Mutation(
        "testbed.policy.gossip.mixing:PushToOne.part", edit("round_ % len(steps)", "0"), GOSSIP
    ),
    "AD-PSGD: both sides of an edge ask": Mutation("testbed.policy.gossip.mixing:two_sides", always(None), GOSSIP),
}
