"""The paradigms: how contributions meet, and over how many tiers of servers. A literal table, as of every axis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from testbed.axes import Axis
from testbed.codec.options import ROWS
from testbed.declaration import option
from testbed.policy.collective import SPARSE
from testbed.policy.collective.options import BACKENDS, INSIDE, SERVERS, AllReduceOptions, GlooOptions, inside_of
from testbed.policy.gossip import GossipOptions
from testbed.preset import Preset
from testbed.settings.job import Choice

if TYPE_CHECKING:
    from torch import Tensor


def _algorithm(name: str, summary: str, source: str) -> Preset:
    """Return the preset of an algorithm of a paradigm, which has the algorithm's name."""
    settings = {"paradigm": {"algorithm": name}}
    return Preset(name=name, summary=summary, source=source, settings=settings, defining=("paradigm.algorithm",))


class Paradigm:
    """Declarations of a paradigm, as class attributes.

    tiers       tiers of parameter servers; 0: workers exchange with each other
    library      whether a library with its own sockets makes the sum, which virtual time cannot simulate
    codecs       whether messages pass through a codec; otherwise values travel unchanged
    models       whether workers send each other models instead of gradients
    global_sum   whether every worker's contribution enters every update, so that all workers have the same model
    survives     whether, with these options, the others can continue after a worker is lost, as they have all its state
    sparse       whether, with these options, most messages send only some elements of a tensor, and the others later
    cuts_models  whether the model is cut over several workers, whose replicas exchange gradients by another paradigm
    messages     kinds of the messages in which workers send each other tensors, as the event log names them
    presets      presets that this class declares itself, without those of its base class
    """

    tiers: ClassVar[int] = 0
    library: ClassVar[bool] = False
    codecs: ClassVar[bool] = True
    models: ClassVar[bool] = False
    global_sum: ClassVar[bool] = True
    cuts_models: ClassVar[bool] = False
    messages: ClassVar[tuple[str, ...]] = ()
    presets: ClassVar[tuple[Preset, ...]] = ()

    @classmethod
    def survives(cls, options: Any) -> bool:
        return not cls.library

    @classmethod
    def sparse(cls, options: Any) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class WithServers(Paradigm):
    """Options of parameter servers."""

    pull: str = option(
        "all",
        "all: every round brings whole tensors; rows: of embedding tables only the rows that the next batch needs, "
        "and a push has only the rows that are not zero",
        choices=("all", ROWS),
    )


@dataclass(frozen=True, slots=True)
class Hips(WithServers):
    """Hierarchical parameter server: workers, one local server per data centre, global servers (GeoMX)."""

    tiers: ClassVar[int] = 2

    inside: str = option(
        SERVERS,
        "how the contributions of a data centre are summed. servers: by its local server. ring: by its workers; only "
        "the first of them pushes to the local server, and it passes on what comes back. gloo: the same, by "
        "torch.distributed on the CPU; nccl: on the GPUs",
        choices=(SERVERS, *INSIDE),
    )

    @classmethod
    def survives(cls, options: Any) -> bool:
        return bool(options.inside == SERVERS)


@dataclass(frozen=True, slots=True)
class ParameterServer(WithServers):
    """Parameter server with one tier: workers push over the WAN, straight to the global servers (ps-lite)."""

    tiers: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class AllReduce(AllReduceOptions, Paradigm):
    """No servers: gradients are summed by all-reduce over the workers, and each applies the same step."""

    messages: ClassVar[tuple[str, ...]] = ("collective",)
    presets: ClassVar[tuple[Preset, ...]] = (
        _algorithm(
            "ring",
            "no servers: gradients are summed around one ring over all workers",
            "Patarasuk and Yuan, JPDC 2009",
        ),
        _algorithm(
            "tree",
            "no servers: gradients are summed up a binary tree of workers, and the sum comes down it",
            "MPI's reduce and broadcast",
        ),
        _algorithm(
            "three_phase_ring",
            "no servers: one worker of each data centre has its sum, and these form a ring over the WAN",
            "Jia et al., 2018",
        ),
        _algorithm(
            "torus2d",
            "no servers: workers form a grid, and gradients are summed along its rows, then along its columns",
            "Mikami et al., 2018",
        ),
        _algorithm(
            "blueconnect",
            "no servers: each worker of a data centre sums one part of the gradients over the WAN",
            "Cho et al., MLSys 2019",
        ),
        Preset(
            name="hitopk",
            summary="no servers: dense sums inside data centres, and about the largest 5 % of them across",
            source="Shi et al., MLSys 2021",
            settings={
                "paradigm": {"algorithm": "hitopk", "density": "5 %"},
                "optimizer": {"kind": "adam", "beta1": 0},  # momentum would repeat a contribution that is sent rarely
            },
            defining=("paradigm.algorithm",),
        ),
    )

    @classmethod
    def survives(cls, options: AllReduceOptions) -> bool:
        equal_sites = options.algorithm in SPARSE and SPARSE[options.algorithm].hierarchical
        return options.optimizer_work == "replicated" and not equal_sites

    @classmethod
    def sparse(cls, options: AllReduceOptions) -> bool:
        return options.algorithm in SPARSE


@dataclass(frozen=True, slots=True)
class Gossip(GossipOptions, Paradigm):
    """No servers, and no global sum: every worker has a model of its own and mixes it with its neighbours'."""

    models: ClassVar[bool] = True
    global_sum: ClassVar[bool] = False
    messages: ClassVar[tuple[str, ...]] = ("gossip",)
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="gossip",
            summary="D-PSGD: in rounds, every worker averages its own model with those of its neighbours",
            source="Lian et al., NIPS 2017",
            settings={"paradigm": {"algorithm": "dpsgd"}},
            defining=("paradigm.algorithm",),
        ),
        _algorithm(
            "adpsgd",
            "no servers, no rounds: two workers average their models whenever one has made a step",
            "Lian et al., ICML 2018",
        ),
        _algorithm(
            "sgp",
            "in rounds, every worker pushes its model to one other; weights are corrected by push-sum",
            "Assran et al., ICML 2019",
        ),
        Preset(
            name="noloco",
            summary="ten local steps, then an outer step with the mean change of a pair, drawn anew in every round",
            source="Kolehmainen et al., 2025",
            settings={
                "paradigm": {"algorithm": "noloco", "graph": "matching"},
                "sync": {"kind": "diloco", "h": 10, "outer_learning_rate": "0.7", "outer_momentum": "0.5"},
            },
            defining=("paradigm.algorithm",),
        ),
    )


@dataclass(frozen=True, slots=True)
class Gloo(GlooOptions, Paradigm):
    """No servers: gradients are summed by torch.distributed, on the same hosts and links. Not simulated."""

    library: ClassVar[bool] = True
    codecs: ClassVar[bool] = False
    messages: ClassVar[tuple[str, ...]] = BACKENDS


REPLICAS: Axis[Paradigm] = Axis(
    "replicas", {"allreduce": AllReduce, "hips": Hips, "ps": ParameterServer, "gossip": Gossip}
)
"""How the replicas of a stage exchange gradients."""


@dataclass(frozen=True, slots=True)
class Pipeline(Paradigm):
    """The model is cut into stages on different workers; replicas of a stage exchange as in another paradigm.

    In a pipeline, several workers make one training step together. ``replicas`` is the paradigm by which the replicas
    of a stage exchange the gradients of its parameters.
    """

    cuts_models: ClassVar[bool] = True
    messages: ClassVar[tuple[str, ...]] = ("activation", "activation-gradient")

    stages: int = option(0, "parts of the model, each on workers of its own; 0: as many as there are workers", max=1024)
    micro_batches: int = option(8, "parts of a batch that follow each other through the stages", min=1, max=65_536)
    schedule: Any = option(Choice(kind="1f1b"), "in which order a stage computes its passes", axis="schedule")
    placement: Any = option(Choice(kind="in_order"), "which workers hold which stage", axis="placement")
    cuts: str = option(
        "",
        "numbers of the model's segments with which the second stage and those after it begin, separated by blanks; "
        "empty: stages take equally long, as far as segments allow",
    )
    replicas: Any = option(Choice(kind="allreduce"), "how replicas of a stage exchange gradients", axis="replicas")
    activations: Any = option(Choice(kind="none"), "codec of activations, which go forward", axis="codec")
    activation_gradients: Any = option(Choice(kind="none"), "codec of their gradients, which come back", axis="codec")
    recompute: bool = option(
        False,
        "whether a stage keeps only the inputs of its parts, and repeats the forward pass before the backward pass: "
        "less memory, more time, the same bits",
    )
    error_feedback: bool = option(
        False,
        "whether what these codecs leave out is added to the same micro-batch of the next step, which has other "
        "samples; otherwise it is lost",
    )

    @classmethod
    def survives(cls, options: Any) -> bool:
        return False


class Workers(Protocol):
    """The workers that take part, as one of them sees them. All must make the same calls in the same order.

    Tensors are flat.

    ranks  the workers' names, in the same order on all of them
    rank   this worker's place in ``ranks``
    size   number of workers
    """

    ranks: tuple[str, ...]
    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> Coroutine[Any, Any, Tensor]:
        """Return the sum of all workers' tensors, with the same bits on every worker."""

    def all_gather(self, tensor: Tensor) -> Coroutine[Any, Any, list[Tensor]]:
        """Return all workers' tensors, by rank."""

    def broadcast(self, tensor: Tensor) -> Coroutine[Any, Any, Tensor]:
        """Return the first worker's tensor. On other workers, only the size of ``tensor`` matters."""


class OwnParadigm(Paradigm, ABC):
    """The base class of users' paradigms: workers have their own models and mix them. A frozen dataclass of options:

    @dataclass(frozen=True)
    class Averaging(OwnParadigm):
        every: int = option(4, "rounds from one average to the next", min=1)

        def mixes(self, round_: int) -> bool:
            return (round_ + 1) % self.every == 0

        async def mix(self, round_: int, model: Tensor, workers: Workers) -> Tensor:
            return await workers.all_reduce(model) / workers.size
    """

    models: ClassVar[bool] = True
    codecs: ClassVar[bool] = False
    global_sum: ClassVar[bool] = False
    messages: ClassVar[tuple[str, ...]] = ("collective",)

    @abstractmethod
    def mixes(self, round_: int) -> bool:
        """Return whether all workers mix their models after ``round_`` (0, 1, …); after the last round, they do."""

    @abstractmethod
    async def mix(self, round_: int, model: Tensor, workers: Workers) -> Tensor:
        """Return this worker's model after ``round_``, from the ``model`` that it has trained.

        model    flat float32, which must not be changed
        workers  the workers that take part. When one is lost or joins, this call is cancelled, and all call it again
        """


PARADIGMS: Axis[Paradigm] = Axis(
    "paradigm",
    {"hips": Hips, "ps": ParameterServer, "allreduce": AllReduce, "gossip": Gossip, "gloo": Gloo, "pipeline": Pipeline},
    OwnParadigm,
    removed={
        "mpi": "start a program that calls MPI with 'workload: {first: mpirun -n {world_size} python …}', as the "
        "shipped scenario paradigms/mpi does; docs/programs.md explains the section"
    },
)


def library_of(kind: str, options: Mapping[str, Any]) -> str:
    """Return the library that sums over all workers, or over those of a data centre; empty if there is none."""
    if PARADIGMS[kind].library:
        return str(GlooOptions(**options).backend)
    inside = inside_of(options)
    return str(options["inside"]) if inside is not None and inside.library else ""
