"""Where keys live and in which order they are sent: the shard and order axes of a Plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.engine import sync_setup
from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.order.base import Order
from testbed.policy.order.dgt import Dgt
from testbed.policy.shard import SHARDS
from testbed.policy.shard.slices import Slice
from testbed.training.options import OPTIMIZERS

Slicer = Callable[[tuple[int, ...], int], tuple[Slice, ...]]  # from the elements of each key and the number of servers


def _order(plan: Plan) -> tuple[type[Order], Any]:
    choice = plan.technique.order
    return ORDERS[choice.kind], ORDERS.options(choice.kind, choice.options)


def order_of(plan: Plan) -> Order:
    """Return what decides which slice is sent next."""
    order, options = _order(plan)
    return order(options)


def overlaps(plan: Plan) -> bool:
    """Return whether layers are sent while others are being computed."""
    order, options = _order(plan)
    return order.overlaps(options)


def needs_loss(plan: Plan) -> bool:
    """Return whether workers send their training loss along with their pushes."""
    order, options = _order(plan)
    return order.needs_loss(options)


def dgt_options(plan: Plan) -> Dgt.Options | None:
    """Return the options of an order that sends blocks unreliably, ``None`` for any other."""
    order, options = _order(plan)
    return options if order.best_effort else None


def slicer_of(plan: Plan) -> Slicer:
    """Return the function that places keys by the shard axis and cuts them further by the order axis.

    The function raises ``ScenarioError`` where servers would update slices with an optimizer of whole tensors.
    """
    choice, order = plan.technique.shard, order_of(plan)
    shard = SHARDS[choice.kind](SHARDS.options(choice.kind, choice.options))
    whole_tensors = OPTIMIZERS[plan.technique.optimizer.kind].whole_tensors and optimizer_at_top(plan)

    def slices(sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        found = order.cut(shard.slices(sizes, servers))
        if whole_tensors and len(found) > len(sizes):
            raise ScenarioError(
                f"optimizer: '{plan.technique.optimizer.kind}' takes norms of whole tensors, and here servers update "
                "slices of them; write 'at: worker', 'order: fifo', or a larger bound for 'shard'"
            )
        return found

    return slices


def optimizer_at_top(plan: Plan) -> bool:
    """Return whether the scenario's optimizer stands at the global servers, and not at workers."""
    is_gradient = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    return is_gradient and plan.technique.optimizer.options.get("at") != "worker"
