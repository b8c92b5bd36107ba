"""The scenario: its sections as frozen models that embed the options dataclasses of their owners.

Texts under the fields are what an editor shows (``testbed schema``). ``testbed.scenario.rules`` holds the rules that
need more than one section.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import PrivateAttr, ValidationInfo, model_validator

from testbed.axes import CodeFile
from testbed.codec.options import CODECS
from testbed.paradigms import PARADIGMS
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.axes import PerTier, Technique, axis, per_tier, short
from testbed.scenario.reading.document import Where
from testbed.scenario.reading.quantities import ACCURACY, BOOLEAN, NAME, exactly, integer, one_of
from testbed.scenario.reading.section import NULLABLE, Section
from testbed.scenario.reading.violations import Violation
from testbed.scenario.sections.background import Background
from testbed.scenario.sections.devices import Device
from testbed.scenario.sections.faults import Fault
from testbed.scenario.sections.run import (
    Checkpoints,
    ClusterSection,
    ExactSection,
    Recovery,
    RunSection,
    SimulationSection,
    TimeoutChanges,
    Transport,
)
from testbed.scenario.sections.workload import Workload, with_workload, without_own
from testbed.scenario.topology.topology import Topology
from testbed.scenario.topology.traces import TraceSummary
from testbed.scenario.topology.use import TOPOLOGY
from testbed.training.options import DATASETS, LOADINGS, MODELS, OPTIMIZERS, SPLITS


class Training(Section):
    """The job."""

    model: Annotated[Technique, axis("model", MODELS)]
    """The model."""
    data: Annotated[Technique, axis("data", DATASETS)]
    """The data set."""
    split: Annotated[Technique, axis("split", SPLITS)] = short("iid")
    """How the data is split over the workers."""
    batch: Annotated[int, integer(1, 65_536)] = 32
    """Samples of one step of one worker."""
    rounds: Annotated[int, integer(1, 10_000_000, sample=10_000_000)]
    """Rounds after which the run ends."""
    target_accuracy: Annotated[float | None, ACCURACY] = None
    """Test accuracy at which the run ends earlier."""
    evaluate_every: Annotated[int, integer(1, 10_000_000)] = 10
    """Rounds between two evaluations. An evaluation takes no time of the run's clock."""
    compute: Annotated[str, one_of("real", "modelled")] = "real"
    """real: tensors are computed. modelled: sizes only, for thousands of data centres; simulate only."""
    loading: Annotated[Technique, axis("loading", LOADINGS)] = short("in_memory")
    """Where samples come from: all in memory, or a cache of levels."""
    precision: Annotated[str, one_of("float32", "tf32", "bf16")] = "float32"
    """Of forward and backward; parameters, gradients and sums are float32. tf32: matrices are multiplied in TF32 (GPUs
    only). bf16: automatic mixed precision with bfloat16."""
    accumulate: Annotated[int, integer(1, 65_536)] = 1
    """Parts into which a batch is cut to save memory; their gradients are averaged."""
    compile: Annotated[bool, BOOLEAN] = False
    """Whether models are compiled (torch.compile), before training begins."""
    deterministic: Annotated[bool, BOOLEAN] = False
    """Whether only operations are used that give equal bits every time; on a GPU, where others are faster."""

    def _violations(self) -> Iterator[Violation]:
        if self.accumulate > self.batch:
            problem = f"{self.accumulate} parts of a batch of {self.batch} samples"
            yield Violation(("accumulate",), problem, f"write {self.batch} or less, or a larger batch")
        takes = self.model.declared.takes
        gives = self.data.declared.gives
        if takes != gives:
            problem = f"'{self.data.kind}' gives {gives}, but the model '{self.model.kind}' takes {takes}"
            yield Violation(("data",), problem, "choose another model or data")
        elif self.target_accuracy is not None and self.evaluate_every > self.rounds:
            problem = f"{self.evaluate_every} is more than training.rounds ({self.rounds})"
            yield Violation(("evaluate_every",), problem, "target_accuracy would never be reached")


class Scenario(Section):
    """One experiment: network, job, and one technique per axis."""

    version: Annotated[int, exactly(1, "this release reads version 1")]
    """Version of this format."""
    name: Annotated[str, NAME]
    """Name of the scenario."""
    seed: Annotated[int, integer(0, 2**63 - 1)]
    """Every random number of the run is derived from it."""
    run: RunSection = RunSection()
    """How to run it."""
    topology: Annotated[Topology, TOPOLOGY]
    """Data centres and the network between them."""
    training: Training
    """The job: model, data, and when the run ends."""
    device: Device = Device()
    """What the workers compute on."""
    transport: Transport = Transport()
    """Socket options."""
    timeouts: TimeoutChanges = TimeoutChanges()
    """Deadlines."""
    background: tuple[Background, ...] = ()
    """Traffic on the WAN that is not the run's."""
    workload: Annotated[Workload | None, NULLABLE] = None
    """Your own training code: {script: FILE}; then 'training' needs only 'rounds'. Or any program, without 'training':
    {command: …}."""
    checkpoint: Checkpoints = Checkpoints()
    """What is kept so that a run can be resumed."""
    faults: tuple[Fault, ...] = ()
    """What breaks on purpose, and when."""
    recovery: Recovery = Recovery()
    """What is done about lost nodes."""
    simulation: SimulationSection = SimulationSection()
    """How the virtual world runs."""
    exact: ExactSection = ExactSection()
    """The kernel of an exact run."""
    cluster: ClusterSection = ClusterSection()
    """Where a deployment runs."""
    paradigm: Annotated[Technique, axis("paradigm", PARADIGMS)] = short("hips")
    """hips: hierarchical parameter server, two tiers (GeoMX). ps: parameter server, one tier (ps-lite)."""
    sync: Annotated[PerTier, per_tier("sync", SYNC)] = short("fsa")
    """When a round is complete, and which nodes wait for others."""
    optimizer: Annotated[Technique, axis("optimizer", OPTIMIZERS)] = short("adam")
    """How parameters are updated, and where."""
    codec: Annotated[PerTier, per_tier("codec", CODECS)] = short("none")
    """How tensors become payloads."""
    order: Annotated[Technique, axis("order", ORDERS)] = short("fifo")
    """Which slice is sent next."""
    overlay: Annotated[PerTier, per_tier("overlay", OVERLAYS)] = short("star")
    """Along which nodes contributions and values travel."""
    shard: Annotated[Technique, axis("shard", SHARDS)] = short("hashed")
    """Which key, or slice, lives on which global server."""

    _origin: Any = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _with_workload(cls, data: Any, info: ValidationInfo) -> Any:
        return with_workload(data, info)

    @property
    def is_program(self) -> bool:
        """Whether the workload is a command."""
        return self.workload is not None and self.workload.is_program

    def resolved(self) -> dict[str, Any]:
        """Return all values that have an effect."""
        found = super().resolved()
        return found if self.workload is None else without_own(found, self.is_program)

    def place_of(self, *path: str | int) -> Where:
        """Return where the value at ``path`` was written, for a problem that is found after reading."""
        return self._origin.place_of(path) if self._origin else Where(self.name)

    @property
    def code(self) -> tuple[CodeFile, ...]:
        """The files of topology readers and trace formats from outside that read parts of it."""
        return self._origin.code if self._origin else ()

    @property
    def traces(self) -> tuple[TraceSummary, ...]:
        """What was read from the files of traces."""
        return self._origin.traces if self._origin else ()
