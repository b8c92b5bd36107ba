"""The shipped techniques pass the checks that techniques from outside have to pass."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import testbed.testing
from testbed.testing import verdict
from testbed.testing.catalogue import CONTRACTS, checks_of
from testbed.testing.subject import AXES, Subject
from tests.for_each import for_each
from tests.topologies.zoo import GML, SNDLIB, TRIANGLE, graphml
from topologies.readers import READERS
from topologies.text_file import TextFile

SPARSE = {"ratio": 0.05, "bound": 2}
MORE: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "sync": [
        ("ssp", {"staleness": 0}), ("ssp", {"staleness": 1}), ("hfa", {"k1": 2, "k2": 3}),
        ("esync", {"fixed_steps": 3}),
    ],
    "codec": [
        ("bisparse", SPARSE),
        ("bisparse", {**SPARSE, "pull": "sparse-sum", "padded": True}),
        ("bisparse", {**SPARSE, "pull": "dense"}),
        ("dgc", {**SPARSE, "stage_rounds": 2, "warmup_stages": 2, "clip_norm": 1.0}),
        ("topk", SPARSE),
        ("randomk", SPARSE),
        ("mstopk", SPARSE),
    ],
    "order": [("fifo", {"slice": 50_000}), ("p3", {"slice": 4000}), ("dgt", {"late": "retransmit"})],
    "shard": [("multigps", {"rule": "even"}), ("multigps", {"bound": 1}), ("hashed", {"bound": 100})],
    "overlay": [("tree", {"degree": 1}), ("tsengine", {"pairing": "fastest"}),
    ("tsengine", {"ports": 1, "max_greed": 0.0})],
    "model": [("mlp", {"layers": 0}), ("vit", {"size": "tiny"})],
    "data": [("teacher", {"channels": 3, "noise": 0.5}), ("clicks", {"fields": 3, "noise": 0.5})],
    "split": [("dirichlet", {"alpha": 0.05}), ("by_count", {"skew": 1.5})],
    "optimizer": [("sgd", {"momentum": 0.9, "nesterov": True}), ("dcasgd", {"adaptive": True, "compensation": 2.0})],
}  # fmt: skip
MORE_SLOWLY: dict[str, list[tuple[str, dict[str, Any]]]] = {  # 0.7 to 2 s each; the options of those above, one by one
    "codec": [
        ("twobit", {"threshold": 0.25}),
        ("bisparse", {**SPARSE, "padded": True}),
        ("bisparse", {**SPARSE, "pull": "sparse-sum"}),
        ("mstopk", {**SPARSE, "selector": "exact"}),
    ],
    "model": [("resnet", {"blocks": 3})],
}
WITHOUT_CONTRACT = (  # sizes or files alone
    "declared", "script", "user_program", "none", "mnist", "fashion_mnist", "cifar10", "text",
    "movielens",
)  # fmt: skip
ON_FILES = ("topology", "trace")
LARGE = dict.fromkeys(("vit", "resnet50"), pytest.mark.slow)  # 9 s and 8 s: 86 and 26 million parameters
CASES = [
    *(pytest.param(axis, kind, {}, marks=LARGE.get(kind, ())) for axis, table in AXES.items() for kind in table.shipped
      if axis not in ON_FILES and (axis in ("sync", "codec") or kind not in WITHOUT_CONTRACT)),
    *((axis, kind, values) for axis, cases in MORE.items() for kind, values in cases),
    *(pytest.param(axis, kind, values, marks=pytest.mark.slow)
      for axis, cases in MORE_SLOWLY.items() for kind, values in cases),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _fewer_damages(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each size, instead of nine: most of the time of a codec's checks. Those of examples make them all."""
    monkeypatch.setattr("testbed.testing.codec.DAMAGES", 13)


def failures(subject: Subject) -> list[verdict.Result]:
    checks = checks_of(subject.axis.name, with_training=False)
    return [result for result in verdict.run(subject, checks) if not result.passed]


@pytest.mark.sample(10)  # of 75, which take 29 s
@pytest.mark.parametrize(("axis", "kind", "values"), CASES, ids=lambda part: str(part).replace(" ", ""))
def test_it_keeps_the_contract_of_its_axis(axis: str, kind: str, values: dict[str, Any]) -> None:
    assert failures(Subject(AXES[axis], kind, values)) == []


def test_text_keeps_the_contract_of_data_sets(tmp_path: Path) -> None:
    file = tmp_path / "fox.txt"
    file.write_text("the quick brown fox jumps over the lazy dog; " * 60, encoding="utf-8")
    assert failures(Subject(AXES["data"], "text", {"file": str(file), "context": 16})) == []


INTERVALS = ", ".join(
    f'{{"sum": {{"start": {n}, "end": {n + 1}, "seconds": 1.0, "bytes": 1000000, "bits_per_second": 8e6}}}}'
    for n in range(2)
)
FILES = {
    ("topology", "graphml"): graphml(*TRIANGLE),
    ("topology", "gml"): GML,
    ("topology", "sndlib"): SNDLIB,
    ("trace", "csv"): "# measured\ntime_s,rate_mbit_s\n0,8\n1,16\n",
    ("trace", "mahimahi"): "".join(f"{time_ms}\n" for time_ms in range(0, 3000, 7)),
    ("trace", "pensieve"): "0.5 4.0\n1.0 8.0\n2.5 6.0\n",
    ("trace", "fcc"): "900000\n800000\n700000\n",
    ("trace", "hsdpa"): "1 1000 59.8 10.7 120000 1000\n2 2000 59.8 10.7 130000 1000\n",
    ("trace", "iperf3"): f'{{"intervals": [\n{INTERVALS}\n]}}\n',
}  # not of fcc-raw and skyplane, whose files hold many traces


@for_each(("axis", "kind"), FILES)
def test_readers_and_formats_keep_the_contract_on_a_file(axis: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"file{''.join(READERS[kind].endings) if axis == 'topology' else '.txt'}"
    file.write_text(FILES[axis, kind], encoding="utf-8")
    assert failures(Subject(AXES[axis], kind, {}, TextFile.read(file))) == []


def test_every_axis_has_checks() -> None:
    assert set(CONTRACTS) == set(AXES)


def test_the_kit_needs_no_test_library() -> None:
    for path in Path(testbed.testing.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not {"pytest", "hypothesis", "tests"} & {name.partition(".")[0] for name in names}, path
