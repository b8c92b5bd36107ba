"""Execution traces of jobs: Chakra's, and those that PyTorch writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

from testbed.job_trace import pytorch
from testbed.job_trace.reading import read_job
from tests.fuzz.texts import spoilt
from tests.fuzz.trial import Input
from tests.job_trace import test_pytorch as made
from tests.job_trace.shipped import FOLDER

_WORDS = ("null", "-1", "1e400", '"x"', "[]", "{}", "true", "9" * 30, "0.5", '""', "\x00", "}", "[", ",", "COMP_NODE")


def job(chance: Random, folder: Path) -> Input:
    """The shipped trace with one rank spoilt, or a spoilt pair of PyTorch's files."""
    if chance.random() < 0.4:
        return _of_pytorch(chance, folder)
    for path in (FOLDER / "two-stages").glob("job.?.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / f"job.{chance.randrange(4)}.json"
    path.write_bytes(spoilt(path.read_text(encoding="utf-8"), chance, _WORDS))
    groups = str(FOLDER / "two-stages" / "job.groups.json")
    return Input(lambda: read_job(str(folder / "job"), groups=groups), (str(folder),))


@cache
def _pair() -> tuple[str, str]:
    nodes = [
        made.node(3, "c10d::allreduce_", [[made.TENSOR], "<Object>", True, -1], made.ALL_REDUCE_SCHEMA),
        made.node(4, "gloo:all_reduce", [made.TENSOR]),
    ]
    events = [
        made.event("aten::mm", 0, 1000, **made.of(2)),
        made.event("c10d::allreduce_", 1000, 1050, **made.of(3)),
        made.event("gloo:all_reduce", 1100, 5000, "user_annotation", 2, **made.of(4)),
        made.event("Optimizer.step#SGD.step", 5100, 5200, "user_annotation"),
    ]
    observed = {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}
    return json.dumps(observed, indent=0), json.dumps({"traceEvents": events}, indent=0)


def _of_pytorch(chance: Random, folder: Path) -> Input:
    texts = [text.encode() for text in _pair()]
    at = chance.randrange(2)
    texts[at] = spoilt(texts[at].decode(), chance, _WORDS)
    paths = [folder / "et.json", folder / "kineto.json"]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    return Input(lambda: pytorch.read(*paths, 0), (str(paths[0]), str(paths[1])))
