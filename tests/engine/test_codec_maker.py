"""What a connection tells its codec: how many contribute to a value, and whose contributions it encodes."""

from __future__ import annotations

import torch

from testbed.engine.kvworker import codec_maker
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each

SIZE = 4000


def plan_of(*texts: str) -> Plan:
    return build_plan(load(THREE_SITES, ["optimizer={kind: sgd, at: worker}", *texts]), "simulate")


@for_each("padded", ["true", "false"])
def test_a_local_servers_values_are_sums_over_all_data_centres(padded: str) -> None:
    """Four workers whose elements are disjoint: as many pairs as all of them send, and no dense tensor."""
    topk = f"{{kind: topk, ratio: 0.01, pull: sparse-sum, padded: {padded}}}"
    plan = plan_of(f"codec={{tier1: {topk}, tier2: none}}")
    total = torch.zeros(SIZE)
    for place, worker in enumerate(plan.training_workers):
        child = codec_maker(plan, worker.parents[0], worker.name)()
        total += child.decode(0, child.encode(0, torch.eye(4)[place].repeat(SIZE // 4)), SIZE)
    server = codec_maker(plan, "east/server0")(None, "east/worker0")
    parts = server.encode_value(0, total)
    assert sum(part.nbytes for part in parts) == 4 * 40 * 8
    assert torch.equal(codec_maker(plan, "east/server0", "east/worker0")().decode_value(0, parts, SIZE), total)


@for_each("codec", ["randomk, ratio: 0.01", "mstopk, ratio: 0.01"])
def test_workers_and_keys_draw_positions_of_their_own(codec: str) -> None:
    plan = plan_of(f"codec={{kind: {codec}, pull: sparse-sum}}")
    # the published search draws a run among equal elements
    tensor = torch.ones(SIZE)
    tensor[::200] = 1.5
    drawn = {}
    for worker in ("east/worker0", "east/worker1", "hub/worker0"):
        ends = [codec_maker(plan, plan.node(worker).parents[0], worker)() for _ in "ab"]
        for key in (1, 2):
            drawn[worker, key] = ends[0].decode(key, ends[0].encode(key, tensor), SIZE)
        for key in (2, 1):  # in another order
            assert torch.equal(ends[1].decode(key, ends[1].encode(key, tensor), SIZE), drawn[worker, key])
    assert len({tuple(each.nonzero().view(-1).tolist()) for each in drawn.values()}) == len(drawn)


def test_a_checkpoint_keeps_the_stream_of_each_key() -> None:
    plan, tensor = plan_of("codec={kind: randomk, pull: sparse-sum}"), torch.ones(SIZE)
    before, after = (codec_maker(plan, "east/server0", "east/worker0")() for _ in "ab")
    for key in (1, 2):
        before.encode(key, tensor)
    after.load_state(before.state())
    for key in (2, 1):
        sent = [codec.decode(key, codec.encode(key, tensor), SIZE) for codec in (before, after)]
        assert torch.equal(*sent)
