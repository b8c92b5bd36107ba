"""The section ``training``: the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from testbed.scenario.reading.axes import Technique, axis, short
from testbed.scenario.reading.quantities import ACCURACY, BOOLEAN, integer, one_of
from testbed.scenario.reading.section import Section
from testbed.scenario.reading.violations import Violation
from testbed.training.options import DATASETS, LOADINGS, MODELS, SPLITS


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
        takes, gives = self.model.declared.takes, self.data.declared.gives
        if takes != gives:
            problem = f"'{self.data.kind}' gives {gives}, but the model '{self.model.kind}' takes {takes}"
            yield Violation(("data",), problem, "choose another model or data")
        elif self.target_accuracy is not None and self.evaluate_every > self.rounds:
            problem = f"{self.evaluate_every} is more than training.rounds ({self.rounds})"
            yield Violation(("evaluate_every",), problem, "target_accuracy would never be reached")
