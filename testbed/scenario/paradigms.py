"""The paradigms: who keeps the model, and over how many tiers it is kept. A literal table, as of every axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.collective import AllReduceOptions
from testbed.policy.collective.peers import GlooOptions, MpiOptions
from testbed.policy.gossip import GossipOptions


@dataclass(frozen=True, slots=True)
class Hips:
    """Hierarchical parameter server: workers, one local server per data centre, global servers (GeoMX)."""

    tiers: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Parameter server with one tier: workers push over the WAN, straight to the global servers (ps-lite)."""

    tiers: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class AllReduce(AllReduceOptions):
    """No servers: gradients are summed by all-reduce over the workers, each applies the same step."""

    tiers: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Gossip(GossipOptions):
    """No servers, and no global sum: every worker has a model of its own and mixes it with its neighbours'."""

    tiers: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Gloo(GlooOptions):
    """No servers: gradients are summed by torch.distributed, on the same hosts and links. Not simulated."""

    tiers: ClassVar[int] = 0
    virtual: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Mpi(MpiOptions):
    """No servers: gradients are summed by an MPI (MPICH), on the same hosts and links. Not simulated."""

    tiers: ClassVar[int] = 0
    virtual: ClassVar[bool] = False


PARADIGMS = {
    "hips": Hips, "ps": ParameterServer, "allreduce": AllReduce, "gossip": Gossip, "gloo": Gloo, "mpi": Mpi,
}  # fmt: skip
