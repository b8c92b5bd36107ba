"""A user's codec by shape and a user's outer optimizer, each one file: they keep their contracts, and train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from testbed.testing.contracts import failures
from testbed.testing.subject import find
from tests.engine.runs import run
from tests.for_each import for_each

OWN = Path(__file__).parent / "own"
CODEC = f"{OWN}/row_top.py:RowTop"
OUTER = f"{OWN}/trusting.py:TrustingStep"
SETTINGS = ("training.model={kind: mlp, hidden: 8}", "sync={kind: diloco, h: 3}", "training.rounds=6")


@for_each(("kind", "axis"), [(CODEC, "codec"), (OUTER, "optimizer")])
def test_they_keep_the_contracts_of_their_axes(kind: str, axis: str) -> None:
    assert failures(find(kind, axis)) == []
    assert len(Path(kind.partition(":")[0]).read_text().splitlines()) <= 80


@pytest.mark.slow  # 12 s
def test_they_train_to_equal_bits_in_both_worlds() -> None:
    """``testbed check`` without ``--quick``."""
    from testbed.testing import training
    from testbed.testing.requirement import requirements_of, results

    for kind in (CODEC, OUTER):
        found = list(results(find(kind), requirements_of(training)))
        assert [each for each in found if not each.passed] == []


@for_each("paradigm", ["hips", "ps", "allreduce"])
def test_both_together_train_in_every_paradigm_that_tells_shapes(paradigm: str, tmp_path: Path) -> None:
    local = "optimizer={kind: sgd, learning_rate: 0.1}"
    settings = (
        *SETTINGS,
        local,
        f"paradigm={paradigm}",
        f"codec={CODEC}",
        f"outer_optimizer={{kind: {OUTER}, learning_rate: 1}}",
    )
    done = run(tmp_path, *settings)
    assert len(done.hashes()) == 1
    assert torch.isfinite(done.parameters("west/worker0")).all()
    assert {file.axis for file in done.plan.code} == {"codec", "optimizer"}
