"""DGT's place in a run, from the Plan: between a data centre's server and the global servers."""

from __future__ import annotations

from testbed.engine.dgt.receiver import BlockReceiver
from testbed.engine.dgt.sender import BlockSender
from testbed.engine.inbox import Inbox
from testbed.engine.kvworker import Send
from testbed.plan.model import NodePlan, Plan
from testbed.policy.order import ORDERS
from testbed.policy.order.dgt import Dgt
from testbed.policy.sync import SYNC
from testbed.training.seeds import torch_stream
from testbed.world import World


def dgt_options(plan: Plan) -> Dgt.Options | None:
    """Return the options of an order that sends blocks unreliably, ``None`` for any other."""
    order = plan.technique.order
    options = ORDERS.options(order.kind, order.options)
    return options if ORDERS[order.kind].best_effort else None


def needs_loss(plan: Plan) -> bool:
    """Return whether workers send their training loss along with their pushes."""
    order = plan.technique.order
    return ORDERS[order.kind].needs_loss(ORDERS.options(order.kind, order.options))


def sender(plan: Plan, node: NodePlan, world: World, inbox: Inbox) -> Send:
    """Return how ``node`` sends to its parents: in blocks to a global server, or as the world does."""
    options = dgt_options(plan)
    if options is None or plan.node(node.parents[0]).role != "global_server":
        return world.send
    # where workers do not wait for each other, each of them may have a push of a key in flight
    pushes_in_flight = 1 if SYNC[plan.technique.sync_tier1.kind].waits else max(1, len(node.children))
    return BlockSender(world, inbox, options, torch_stream(plan.seed, "dgt", node.name), pushes_in_flight).send


def block_receiver(plan: Plan, node: NodePlan, world: World, inbox: Inbox) -> BlockReceiver | None:
    """Return what stands between a global server and its inbox, if its children send blocks."""
    options = dgt_options(plan)
    if options is None or node.role != "global_server":
        return None
    return BlockReceiver(world, inbox, options)
