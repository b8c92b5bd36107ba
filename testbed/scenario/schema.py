"""The scenario and its sections, declared like all settings (``testbed.declaration``).

``testbed.scenario.rules`` holds the rules that concern more than one section.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from testbed.axes import CodeFile
from testbed.declaration import option, required
from testbed.errors import ScenarioError
from testbed.scenario import presets
from testbed.scenario.reading.axes import PerTier, Technique
from testbed.scenario.reading.declared import changes_of, model_of, resolved
from testbed.scenario.reading.document import Node, Where
from testbed.scenario.reading.models import reading
from testbed.scenario.reading.problems import place
from testbed.scenario.reading.quantities import exactly
from testbed.scenario.reading.section import ReadAs, as_yaml
from testbed.scenario.topology.topology import Topology
from testbed.scenario.topology.traces import TraceSummary
from testbed.scenario.topology.use import TOPOLOGY
from testbed.scenario.workload import with_workload, without_own
from testbed.settings.faults import Fault
from testbed.settings.job import Choice, DeviceSection, Training, Workload
from testbed.settings.run import (
    Background,
    Checkpoints,
    Cluster,
    Exact,
    Recovery,
    RunSection,
    Simulation,
    Timeouts,
    Transport,
)

_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)*")

TimeoutChanges = changes_of(
    Timeouts, "TimeoutChanges", "Deadlines that differ from the ones derived from rates, delays and sizes."
)


class Origin:
    """Where a scenario's values were written, the code that read them, and the traces that were read."""

    def __init__(
        self,
        root: Node,
        code: tuple[CodeFile, ...],
        traces: tuple[TraceSummary, ...],
        path_in_file: Callable[[str], str],
    ) -> None:
        self._root = root
        self.path_in_file = path_in_file
        self.code = code
        self.traces = traces

    def place_of(self, path: tuple[str | int, ...]) -> Where:
        return place(self._root, path)[0]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One experiment: network, job, and one technique per axis."""

    version: int = required(form=exactly(1, "this release reads version 1"))
    """Version of this format."""
    name: str = required(form="name")
    """Name of the scenario."""
    seed: int = required(max=2**63 - 1)
    """Every random number of the run is derived from it."""
    run: RunSection = option(RunSection())
    """How to run it."""
    topology: Topology = required(form=TOPOLOGY)
    """Data centres and the network between them."""
    training: Training[Technique] = required(section=Training)
    """The job: model, data, and when the run ends."""
    device: DeviceSection = option(DeviceSection())
    """What the workers compute on."""
    transport: Transport = option(Transport())
    """Socket options."""
    timeouts: Any = option(TimeoutChanges(), section=TimeoutChanges)
    """Deadlines."""
    background: tuple[Background, ...] = ()
    """Traffic on the WAN that does not belong to the run."""
    workload: Workload | None = None
    """Your own training code: {script: FILE}; then 'training' needs only 'rounds'. Or, without 'training', any program,
    {command: …}, or a job that was traced elsewhere, {trace: FOLDER}."""
    checkpoint: Checkpoints = option(Checkpoints())
    """What is kept so that a run can be resumed."""
    faults: tuple[Fault, ...] = ()
    """What breaks on purpose, and when."""
    recovery: Recovery = option(Recovery())
    """How the run continues when nodes are lost."""
    simulation: Simulation = option(Simulation())
    """How the virtual world runs."""
    exact: Exact = option(Exact())
    """The kernel of an exact run."""
    cluster: Cluster = option(Cluster())
    """Where a deployment runs."""
    technique: str | None = option(None, form=presets.NAME)
    """A technique by name, with its values on the axes below; values that the scenario itself writes take
    precedence."""
    paradigm: Technique = option(Choice(kind="hips"), axis="paradigm")
    """hips: hierarchical parameter server, two tiers (GeoMX). ps: parameter server, one tier (ps-lite)."""
    sync: PerTier = option(Choice(kind="fsa"), axis="sync", tiers=True)
    """When a round is complete, and which nodes wait for others."""
    optimizer: Technique = option(Choice(kind="adam"), axis="optimizer")
    """How parameters are updated, and where."""
    outer_optimizer: Technique | None = option(None, axis="optimizer")
    """How global values follow the mean change that local steps made to the models; by default 'sync' decides."""
    codec: PerTier = option(Choice(kind="none"), axis="codec", tiers=True)
    """How tensors become payloads."""
    order: Technique = option(Choice(kind="fifo"), axis="order")
    """Which slice is sent next."""
    overlay: PerTier = option(Choice(kind="star"), axis="overlay", tiers=True)
    """Along which nodes contributions and values travel."""
    shard: Technique = option(Choice(kind="hashed"), axis="shard")
    """Which key, or slice, lives on which global server."""
    aggregation: PerTier = option(Choice(kind="mean"), axis="aggregation", tiers=True)
    """How a server combines the contributions to one round; all but the mean are defences against attackers."""
    origin: Origin | None = field(default=None, compare=False, metadata={"derived": True})

    @classmethod
    def read(cls, tree: Any, context: dict[str, Any] | None = None) -> Scenario:
        """Return the scenario in a document's tree. Raise pydantic's ``ValidationError`` with every mistake."""
        found: Scenario = READER.validate_python(tree, context=context)
        return found

    @property
    def is_traced(self) -> bool:
        """Whether the workload is a job's trace."""
        return self.workload is not None and bool(self.workload.trace)

    @property
    def is_program(self) -> bool:
        """Whether the workload is a command."""
        return self.workload is not None and self.workload.is_program

    def resolved(self) -> dict[str, Any]:
        """Return all values that have an effect, with defaults filled in; quantities have units."""
        found = resolved(self)
        return found if self.workload is None else without_own(found, self.workload)

    def to_yaml(self) -> str:
        """Return the scenario as YAML, with defaults and the points of trace files. It loads to an equal scenario."""
        return as_yaml(self.resolved())

    def place_of(self, *path: str | int) -> Where:
        """Return the place where the value at ``path`` was written, for problems found after reading."""
        return self.origin.place_of(path) if self.origin else Where(self.name)

    def placed(self, error: ScenarioError) -> ScenarioError:
        """Add the place in the file to an error found after reading that begins with a key (``training.model: …``)."""
        first, *others = error.problems
        key, _, problem = first.partition(": ")
        if not problem or not _KEY.fullmatch(key):
            return error
        return ScenarioError([f"{self.place_of(*key.split('.'))}: {first}", *others])

    def path_in_file(self, path: str) -> str:
        """Return the path of a setting in its file; for a job, ``jobs.NAME.training.rounds``."""
        return self.origin.path_in_file(path) if self.origin else path

    @property
    def code(self) -> tuple[CodeFile, ...]:
        """The files of the user's topology readers and trace formats that read parts of the scenario."""
        return self.origin.code if self.origin else ()

    @property
    def traces(self) -> tuple[TraceSummary, ...]:
        """Summaries of the traces that were read from files."""
        return self.origin.traces if self.origin else ()


MODEL = model_of(Scenario)
READER: TypeAdapter[Any] = TypeAdapter(
    Annotated[Any, ReadAs(Annotated[reading(MODEL, Scenario), BeforeValidator(with_workload)])]
)
