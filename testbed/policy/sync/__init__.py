"""The synchronisation axis: when is a round complete, who waits, what is applied. One file per algorithm."""

from __future__ import annotations

from testbed.axes import Axis
from testbed.policy.sync.asynchronous import MixedSync, Tap
from testbed.policy.sync.base import SyncPolicy
from testbed.policy.sync.deco import DeCo
from testbed.policy.sync.decoupled import DecoupledDiLoCo
from testbed.policy.sync.diloco import DiLoCo
from testbed.policy.sync.esync import ESync
from testbed.policy.sync.fsa import Bsp, Fsa
from testbed.policy.sync.halos import AsyncLocalSgd, Halos
from testbed.policy.sync.hfa import Hfa
from testbed.policy.sync.quorum import Quorum
from testbed.policy.sync.ssp import Ssp

SYNC: Axis[SyncPolicy] = Axis(
    "sync",
    {
        "fsa": Fsa,
        "mixedsync": MixedSync,
        "hfa": Hfa,
        "esync": ESync,
        "diloco": DiLoCo,
        "bsp": Bsp,
        "tap": Tap,
        "ssp": Ssp,
        "quorum": Quorum,
        "async_local_sgd": AsyncLocalSgd,
        "halos": Halos,
        "deco": DeCo,
        "decoupled": DecoupledDiLoCo,
    },
    base=SyncPolicy,
)
