"""Where DGT stands in a run: between a data centre's server and the global servers; nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from testbed.codec.base import Codec
from testbed.engine import technique
from testbed.engine.dgt_receiver import Assembled, BlockReceiver
from testbed.engine.dgt_sender import BlockSender, Send
from testbed.engine.inbox import Inbox
from testbed.plan.model import NodePlan, Plan
from testbed.policy.order import ORDERS
from testbed.policy.order.dgt import Dgt
from testbed.training.seeds import torch_stream
from testbed.world import World

CodecMaker = Callable[..., Codec]


def dgt_options(plan: Plan) -> Dgt.Options | None:
    """Return the options of an order that sends blocks unreliably, ``None`` for any other."""
    order = plan.technique.order
    options = ORDERS.options(order.kind, order.options)
    return options if ORDERS[order.kind].best_effort else None


def tells_loss(plan: Plan) -> bool:
    """Return whether workers send their training loss along with their pushes."""
    order = plan.technique.order
    return ORDERS[order.kind].needs_loss(ORDERS.options(order.kind, order.options))


def sending(plan: Plan, node: NodePlan, world: World, inbox: Inbox) -> Send:
    """How ``node`` sends to its parents."""
    options = dgt_options(plan)
    if options is None or plan.node(node.parents[0]).role != "global_server":
        return world.send
    under_way = len(node.children) if not technique.sync_kind(plan.technique.sync_tier1).waits else 1
    return BlockSender(world, inbox, options, torch_stream(plan.seed, "dgt", node.name), max(1, under_way)).send


def receiving(plan: Plan, node: NodePlan, world: World, inbox: Inbox) -> BlockReceiver | None:
    """What stands between a global server and its inbox."""
    options = dgt_options(plan)
    if options is None or node.role != "global_server":
        return None
    return BlockReceiver(world, inbox, options)


def assembled(make_codec: CodecMaker) -> CodecMaker:
    """Codecs for a server whose pushes come through a ``BlockReceiver``."""
    return lambda said=None: Assembled(make_codec(said))
