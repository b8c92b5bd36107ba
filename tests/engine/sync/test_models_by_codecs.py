"""Local steps with codecs that send a part now and the rest later: changes of models travel, without momentum."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.runs import run

HFA = ("sync={kind: hfa, k1: 2, k2: 2}", "optimizer={kind: sgd, learning_rate: 0.05, at: worker}", "training.rounds=8")
SPARSE = "bound: 50, pull: dense"


@pytest.mark.sample(2)  # of 7, which take 4 s
@pytest.mark.parametrize(
    "codec",
    ["twobit", *(f"{{kind: {kind}, {SPARSE}}}" for kind in ("bisparse", "dgc", "mpq", "mstopk", "topk", "randomk"))],
)
def test_every_codec_goes_with_averaged_models(codec: str, tmp_path: Path) -> None:
    """With dense values on the way down all workers hold the same model after a round that crossed the WAN."""
    done = run(tmp_path, *HFA, f"codec={codec}")
    assert len(done.hashes()) == 1
    (parameters, *_) = (done.parameters(worker) for worker in done.results if "worker" in worker)
    assert torch.isfinite(parameters).all()


def test_momentum_correction_multiplies_no_outer_gradients(tmp_path: Path) -> None:
    diloco = ("sync={kind: diloco, h: 1}", *HFA[1:2], "training.rounds=4")
    hashes = [
        run(tmp_path / momentum, *diloco, f"codec={{kind: bisparse, {SPARSE}, momentum: {momentum}}}").hashes()
        for momentum in ("0.9", "0")
    ]
    assert hashes[0] == hashes[1]
