"""The aggregation axis: rules by which a server combines its members' contributions to one round. One file per rule.

Rules import torch only for types, so that reading a scenario stays quick.
"""

from __future__ import annotations

from testbed.aggregation.base import AggregationRule
from testbed.aggregation.krum import Krum, MultiKrum
from testbed.aggregation.mean import Mean
from testbed.aggregation.median import Median
from testbed.aggregation.norm_clip import NormClip
from testbed.aggregation.sent_mean import SentMean
from testbed.aggregation.trimmed_mean import TrimmedMean
from testbed.axes import Axis

AGGREGATION: Axis[AggregationRule] = Axis(
    "aggregation",
    {
        "mean": Mean,
        "median": Median,
        "trimmed_mean": TrimmedMean,
        "krum": Krum,
        "multi_krum": MultiKrum,
        "norm_clip": NormClip,
        "sent_mean": SentMean,
    },
    base=AggregationRule,
)
