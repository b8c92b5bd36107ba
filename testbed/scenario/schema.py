"""The scenario: its sections as frozen models that embed the options dataclasses of their owners.

Texts under the fields are what an editor shows (``testbed schema``). Nothing is computed here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PrivateAttr, ValidationInfo, model_validator

from testbed.codec.options import CODECS
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario.axes import PerTier, Section, Technique, axis, per_tier, short
from testbed.scenario.background import Background, background_problems
from testbed.scenario.compatibility import technique_problems
from testbed.scenario.devices import Device
from testbed.scenario.document import Where
from testbed.scenario.faults import Fault, Recovery
from testbed.scenario.network import Topology
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.quantities import (
    ACCURACY,
    BOOLEAN,
    DURATION,
    NAME,
    RATE,
    SIZE,
    TEXT,
    exactly,
    integer,
    is_null,
    one_of,
)
from testbed.scenario.rules import Violation, check_training, raise_found, scenario_problems
from testbed.scenario.use import TOPOLOGY
from testbed.scenario.workload import with_script
from testbed.training.options import DATASETS, LOADINGS, MODELS, OPTIMIZERS, SPLITS

BACK_ENDS = ("emulate", "simulate", "local")


class RunSection(Section):
    """How the scenario is run."""

    on: Annotated[str, one_of(*BACK_ENDS)] = "emulate"
    """emulate: Mininet, real processes. simulate: virtual time. local: real processes on loopback, without a WAN."""


class Training(Section):
    """The job."""

    model: Annotated[Technique, axis("model", MODELS)]
    """What is trained."""
    data: Annotated[Technique, axis("data", DATASETS)]
    """What it is trained on."""
    split: Annotated[Technique, axis("split", SPLITS)] = short("iid")
    """How the data is cut over the workers."""
    batch: Annotated[int, integer(1, 65_536)] = 32
    """Samples of one step of one worker."""
    rounds: Annotated[int, integer(1, 10_000_000, sample=10_000_000)]
    """Rounds after which the run ends."""
    target_accuracy: Annotated[float | None, ACCURACY] = None
    """Test accuracy at which the run ends earlier."""
    evaluate_every: Annotated[int, integer(1, 10_000_000)] = 10
    """Rounds between two measurements of the accuracy. They cost no time of the run's clock."""
    compute: Annotated[str, one_of("real", "modelled")] = "real"
    """real: the true mathematics. modelled: sizes only, for thousands of data centres; simulate only."""
    loading: Annotated[Technique, axis("loading", LOADINGS)] = short("in_memory")
    """Where samples come from: all in memory, or a cache of levels."""

    _rules = model_validator(mode="after")(check_training)


class Transport(Section):
    """What the sockets do; set for every node and recorded."""

    congestion_control: Annotated[str, one_of("cubic", "reno", "bbr")] = "cubic"
    """TCP's congestion control."""
    slow_start_after_idle: Annotated[bool, BOOLEAN] = False
    """Whether TCP begins with a small window again after a pause (the kernel's own default is yes)."""
    unsent_limit: Annotated[int, SIZE] = 131_072
    """Bytes that may wait in a socket unsent; small, so that priorities mean something."""
    mac: Annotated[str, one_of("hmac-sha256", "crc32")] = "hmac-sha256"
    """How frames are protected; crc32 is for experiments on a trusted LAN."""
    tls: Annotated[bool, BOOLEAN] = False
    """Whether what nodes say to each other is encrypted (TLS 1.3, a certificate of the run's own)."""
    send_buffer: Annotated[int | None, SIZE] = None
    """The most data that a socket holds. Unless said, enough for the longest path."""
    receive_buffer: Annotated[int | None, SIZE] = None
    """The largest window that a socket offers: one connection gets no more than this in a round trip."""
    initial_window: Annotated[int | None, integer(1, 1000)] = None
    """Packets that TCP sends before the first acknowledgement (the kernel's own default is 10)."""
    parallel_streams: Annotated[int, integer(1, 64)] = 1
    """Connections that bulk background traffic and measuring tools open between two data centres."""


class TimeoutChanges(Section):
    """Deadlines that differ from the ones derived from rates, delays and sizes (see `testbed plan`)."""

    heartbeat: Annotated[float | None, DURATION] = None
    """Time between two signs of life."""
    suspect: Annotated[float | None, DURATION] = None
    """Silence after which a node is reported."""
    dead_after: Annotated[float | None, DURATION] = None
    """Silence after which a node counts as dead."""
    tcp_user_timeout: Annotated[float | None, DURATION] = None
    """How long TCP keeps trying without an acknowledgement."""
    step_deadline: Annotated[float | None, DURATION] = None
    """The longest wait inside a round."""
    run_deadline: Annotated[float | None, DURATION] = None
    """The longest run."""
    rendezvous: Annotated[float | None, DURATION] = None
    """The longest wait for all nodes to appear."""


class Workload(Section):
    """A user's own training code instead of a model and data by name."""

    script: Annotated[str, TEXT]
    """A Python file in or below the scenario's folder; see testbed/kvstore for what it may call."""


class Checkpoints(Section):
    """What is kept for `testbed run … --resume RUN`: all that the next round depends on, at every node."""

    every: Annotated[int, integer(0, 10_000_000)] = 0
    """Rounds between two checkpoints; 0: none. Workers wait for each other there, whatever the synchronisation."""


class HostSection(Section):
    """A machine whose cores all nodes share, as in emulation; `testbed calibrate RUN` measures it."""

    cores: Annotated[int, integer(1, 1024)]
    """How many."""
    message: Annotated[float, DURATION]
    """Time of a core that a message takes, at each of its ends."""
    stream: Annotated[float, RATE]
    """Bytes of messages that a core gets through, at each end, beside that."""
    step: Annotated[float, DURATION] = 1e-6
    """Time of a core in which a training step really computes, before it is paced."""
    memory: Annotated[float, RATE] = 32e9
    """Bytes that a core reads in sums and optimizers."""
    packet: Annotated[float, DURATION] = 0.0
    """Time of a core that emulating takes, per full segment across the WAN, its acknowledgement included."""


class SimulationSection(Section):
    """How the virtual world runs; no other back end looks at it."""

    fold: Annotated[bool, BOOLEAN] = True
    """Let one coroutine play all workers of a data centre that wait for each other, where nothing is lost by it."""
    events: Annotated[str, one_of("auto", "full", "brief")] = "auto"
    """What nodes log. brief: workers their rounds only, nobody what happens inside a LAN. auto: brief if very many."""
    host: Annotated[HostSection | None, BeforeValidator(lambda value: None if is_null(value) else value)] = None
    """The machine whose emulation is to be predicted. Unless said, every node has a processor of its own."""


class Scenario(Section):
    """One experiment: network, job, and one technique per axis."""

    version: Annotated[int, exactly(1, "this release reads version 1")]
    """Version of this format."""
    name: Annotated[str, NAME]
    """Name of the scenario."""
    seed: Annotated[int, integer(0, 2**63 - 1)]
    """From it every random number of the run is derived."""
    run: RunSection = RunSection()
    """How to run it."""
    topology: Annotated[Topology, TOPOLOGY]
    """Data centres and the network between them."""
    training: Training
    """What is trained, on what, and until when."""
    device: Device = Device()
    """What the workers compute on."""
    transport: Transport = Transport()
    """What the sockets do."""
    timeouts: TimeoutChanges = TimeoutChanges()
    """Deadlines."""
    background: tuple[Background, ...] = ()
    """Others' traffic on the WAN."""
    workload: Annotated[Workload | None, BeforeValidator(lambda value: None if is_null(value) else value)] = None
    """Your own training code: {script: FILE}. Then 'training' needs only 'rounds'."""
    checkpoint: Checkpoints = Checkpoints()
    """What is kept to be resumed."""
    faults: tuple[Fault, ...] = ()
    """What breaks, and when."""
    recovery: Recovery = Recovery()
    """What is done about it."""
    simulation: SimulationSection = SimulationSection()
    """How the virtual world runs."""
    paradigm: Annotated[Technique, axis("paradigm", PARADIGMS)] = short("hips")
    """hips: hierarchical parameter server, two tiers (GeoMX). ps: parameter server, one tier (ps-lite)."""
    sync: Annotated[PerTier, per_tier("sync", SYNC)] = short("fsa")
    """When a round is done, and who waits."""
    optimizer: Annotated[Technique, axis("optimizer", OPTIMIZERS)] = short("adam")
    """How parameters are updated, and where."""
    codec: Annotated[PerTier, per_tier("codec", CODECS)] = short("none")
    """How tensors become payloads."""
    order: Annotated[Technique, axis("order", ORDERS)] = short("fifo")
    """Which tensor goes next."""
    overlay: Annotated[PerTier, per_tier("overlay", OVERLAYS)] = short("star")
    """Who sends to whom."""
    shard: Annotated[Technique, axis("shard", SHARDS)] = short("hashed")
    """Which key lives on which global server."""

    _places: Any = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _scripted(cls, data: Any, info: ValidationInfo) -> Any:
        return with_script(data, info)

    @model_validator(mode="after")
    def _rules(self) -> Scenario:
        raise_found([*self.problems_on_its_back_end(), *background_problems(self.background, self.topology)])
        return self

    def problems_on_its_back_end(self) -> list[Violation]:
        """Combinations that are refused, and limits that are passed; both depend on ``run.on``."""
        return [*technique_problems(self), *scenario_problems(self)]

    def place_of(self, *path: str | int) -> Where:
        """Where the value at ``path`` was written, for a problem that only the Plan can see."""
        return self._places(path) if self._places else Where(self.name)
