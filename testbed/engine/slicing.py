"""Places keys on servers and decides the order in which slices are sent: the shard and order axes of a Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from testbed.codec.options import CODECS, ROWS
from testbed.engine import sync_setup
from testbed.engine.keys import Declaration
from testbed.errors import ScenarioError
from testbed.key_shape import KeyShape
from testbed.plan.model import Plan
from testbed.plan.once import once_per_plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.order.base import Order
from testbed.policy.order.dgt import Dgt
from testbed.policy.order.fifo import AUTO, WHOLE, together
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.shard.slices import Slice, by_rows
from testbed.policy.sync import SYNC
from testbed.training.learner import SegmentedLearner
from testbed.training.options import MODELS, OPTIMIZERS
from testbed.training.options.declarations import SCRIPT

# Returns the slices, given the elements of each key, the number of servers, and the codec that a script has chosen.
Slicer = Callable[[tuple[int, ...], int, str | None], tuple[Slice, ...]]


@once_per_plan
def _order(plan: Plan, script_codec: str | None = None) -> tuple[type[Order], Any]:
    choice = plan.technique.order
    options = ORDERS.options(choice.kind, choice.options)
    if _slices_are_chosen(options) and not may_be_cut(plan, script_codec):
        options = replace(options, slice=WHOLE)
    return ORDERS[choice.kind], options


def _slices_are_chosen(options: Any) -> bool:
    """Return whether the size of slices is chosen automatically for the model, not by the scenario."""
    return bool(getattr(options, "slice", WHOLE) == AUTO)


def may_be_cut(plan: Plan, script_codec: str | None = None) -> bool:
    """Return whether cutting tensors into slices leaves the bits of all results unchanged.

    ``script_codec``: the codec that a script has chosen in place of the Plan's
    """
    if not plan.with_role("global_server"):
        return False
    technique = plan.technique
    return (
        _elements_are_alike(plan, script_codec)
        and all(SYNC[sync.kind].waits for sync in (technique.sync_tier1, technique.sync_tier2))
        and not any(OVERLAYS[overlay.kind].relays for overlay in (technique.overlay_tier1, technique.overlay_tier2))
    )


def _elements_are_alike(plan: Plan, script_codec: str | None = None) -> bool:
    """Return whether codecs and the servers' optimizer treat each element the same, whatever tensor contains it."""
    technique = plan.technique
    codecs = [CODECS[kind] for kind in (technique.codec_tier1.kind, script_codec or technique.codec_tier2.kind)]
    whole_tensors = OPTIMIZERS[technique.optimizer.kind].whole_tensors and optimizer_at_top(plan)
    alike = all((codec.dense or codec.elementwise) and not codec.by_shape for codec in codecs)
    return alike and not whole_tensors


def shapes_to_declare(plan: Plan, shapes: Sequence[KeyShape], script_codec: str | None = None) -> dict[int, KeyShape]:
    """Return the shapes of keys, by key, if a codec depends on them; otherwise none, and none are sent."""
    technique = plan.technique
    codecs = [CODECS[kind] for kind in (technique.codec_tier1.kind, script_codec or technique.codec_tier2.kind)]
    return dict(enumerate(shapes)) if any(codec.by_shape for codec in codecs) else {}


def table_widths(plan: Plan, learner: SegmentedLearner) -> Mapping[int, int]:
    """Return, by key that travels by rows, the elements of a row; none unless the Plan has ``pull: rows``.

    Raise ``ScenarioError`` if the Plan asks for rows, but the model has no such key.
    """
    if plan.technique.paradigm.options.get("pull") != ROWS:
        return {}
    if not learner.widths:
        raise ScenarioError(
            "paradigm.pull: the model looks up no rows: each of its parameters is used whole; write 'pull: all'"
        )
    return learner.widths


def order_of(plan: Plan) -> Order:
    """Return the order, which decides which slice is sent next."""
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
    """Return the order's options if it sends blocks unreliably; otherwise ``None``."""
    order, options = _order(plan)
    return options if order.best_effort else None


@once_per_plan
def slicer_of(plan: Plan) -> Slicer:
    """Return the function that places keys by the shard axis and cuts them further by the order axis.

    The function raises ``ScenarioError`` if servers would update slices with an optimizer that needs whole tensors. All
    nodes share the function and its cached results: most of them ask for the same slices.
    """
    return cache(_make_slicer(plan))


def cut(slicer: Slicer, declaration: Declaration, servers: int) -> tuple[Slice, ...]:
    """Return the slices of the keys that a child declares to ``servers`` servers; tables are cut only between rows."""
    slices = slicer(tuple(declaration.sizes.values()), servers, declaration.codec[0] if declaration.codec else None)
    return by_rows(slices, declaration.widths) if declaration.widths else slices


def keys_together(plan: Plan, sizes: Sequence[int], script_codec: str | None = None) -> list[list[int]] | None:
    """Return the groups of keys that are sent together; ``None`` if each key is sent alone.

    Keys are grouped only if the size of slices is chosen automatically and all keys have the same priority.
    """
    if not plan.with_role("global_server") or not _elements_are_alike(plan, script_codec):
        return None
    choice = plan.technique.order
    order = ORDERS[choice.kind]
    options = ORDERS.options(choice.kind, choice.options)
    urgencies = set(map(order(options).priority, range(len(sizes))))
    return together(sizes) if _slices_are_chosen(options) and len(urgencies) == 1 else None


def _make_slicer(plan: Plan) -> Slicer:
    choice = plan.technique.shard
    shard = SHARDS[choice.kind](SHARDS.options(choice.kind, choice.options))
    whole_tensors = OPTIMIZERS[plan.technique.optimizer.kind].whole_tensors and optimizer_at_top(plan)

    def slices(sizes: tuple[int, ...], servers: int, script_codec: str | None = None) -> tuple[Slice, ...]:
        kind, options = _order(plan, script_codec)
        found = kind(options).cut(shard.slices(sizes, servers))
        if whole_tensors and len(found) > len(sizes):
            raise ScenarioError(
                f"optimizer: '{plan.technique.optimizer.kind}' needs norms of whole tensors, but here servers update "
                "slices of them; write 'at: worker', 'order: fifo', or a larger bound for 'shard'"
            )
        return found

    return slices


def optimizer_at_top(plan: Plan) -> bool:
    """Return whether the scenario's optimizer for gradients is at the global servers, not at workers."""
    is_gradient = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    return is_gradient and plan.technique.optimizer.options.get("at") != "worker"


def sums_in_steps(plan: Plan, tier: int) -> bool:
    """Return whether servers of ``tier`` make the sums of a ``SummedCodec`` step by step (``summed_store``).

    This requires that sums of gradients come back, so that workers run the optimizer.
    """
    choice = plan.technique.codec_tier1 if tier == 1 else plan.technique.codec_tier2
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    is_script = MODELS[plan.training.model.kind].takes == SCRIPT
    return CODECS[choice.kind].summed and gradients and not optimizer_at_top(plan) and not is_script


def gradients_of_a_step(plan: Plan) -> int:
    """Return the number of workers whose gradients the input of an optimizer sums after an exchange among workers.

    It is 1 if the input is a mean.
    """
    return len(plan.training_workers) if optimizer_at_top(plan) else 1
