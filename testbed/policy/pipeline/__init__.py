"""Pipelines: in which order the stages of a model compute, which workers hold them, and where the model is cut."""

from __future__ import annotations

from testbed.axes import Axis
from testbed.policy.pipeline.base import Schedule
from testbed.policy.pipeline.gpipe import GPipe
from testbed.policy.pipeline.greedy import Greedy
from testbed.policy.pipeline.interleaved import Interleaved
from testbed.policy.pipeline.one_f_one_b import OneFOneB
from testbed.policy.pipeline.placement import InOrder, Listed, Placement, Search, WholeReplicas
from testbed.policy.pipeline.zero_bubble import ZeroBubble

SCHEDULES: Axis[Schedule] = Axis(
    "schedule",
    {
        "1f1b": OneFOneB,
        "gpipe": GPipe,
        "interleaved": Interleaved,
        "zero_bubble": ZeroBubble,
        "greedy": Greedy,
    },
    base=Schedule,
)

PLACEMENTS: Axis[Placement] = Axis(
    "placement",
    {"in_order": InOrder, "whole_replicas": WholeReplicas, "listed": Listed, "search": Search},
    base=Placement,
)
