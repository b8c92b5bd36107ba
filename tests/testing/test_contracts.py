"""The contracts hold shipped techniques and those of the documents, and each broken one fails by what is broken."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import testbed.testing
from analysis.studies.study import find as find_study
from testbed.axes import AxisError
from testbed.testing import figure, training
from testbed.testing.contracts import CONTRACTS, contract_of, failures
from testbed.testing.requirement import requirements_of, results
from testbed.testing.subject import AXES, Subject, find
from tests.for_each import for_each
from tests.topologies.zoo import GML, SNDLIB, TRIANGLE, graphml
from topologies.readers import READERS
from topologies.text_file import TextFile

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER / "examples"
GOOD = {
    "sync": "warm_hfa.py:WarmHfa",
    "codec": "sign_sgd.py:SignSgd",
    "order": "biases_first.py:BiasesFirst",
    "overlay": "chain.py:Chain",
    "shard": "round_robin.py:RoundRobin",
    "aggregation": "near_median.py:NearMedian",
    "model": "narrow_perceptron.py:NarrowPerceptron",
    "data": "stripes.py:Stripes",
    "split": "dealt_cards.py:DealtCards",
    "optimizer": "sign_step.py:SignStep",
    "schedule": "waves.py:Waves",
    "placement": "largest_first.py:LargestFirst",
    "topology": "pairs.py:Pairs",
    "trace": "halves.py:Halves",
}
FIGURE = "bytes_of_codecs.py:BYTES_OF_CODECS"
RIGHT = ["Scaled", "Signs", "Lazy", "Differences", "NormalisesWholes"]  # beside broken ones, which derive from them
BROKEN = [
    ("AnswersTwice", "every push is aggregated once and answered once"),
    ("UndeclaredSteps", "every push is aggregated once and answered once"),
    ("SharedState", "instances share no state"),
    ("WaitsForTheLost", "members are lost and join again"),
    ("CountsCalls", "local steps are pure and at least one"),
    ("ForgetsReports", "state is taken over"),
    ("WrongSize", "payloads have the declared size"),
    ("MutatesItsInput", "nothing given or returned is changed"),
    ("AddsToItsInput", "nothing given or returned is changed"),
    ("NotDeterministic", "the same numbers give the same bytes"),
    ("SharesAStream", "keys share no memory"),
    ("NotElementwise", "elementwise is declared as it behaves"),
    ("WrongSign", "what is sent arrives"),
    ("Twofold", "what is sent arrives"),
    ("ZerosAsValues", "what is sent arrives"),
    ("NotExact", "exact is declared as it behaves"),
    ("LosesTheResidual", "what is held back is sent later"),
    ("SendsTwice", "nothing is sent twice"),
    ("RemembersNaN", "non finite numbers never travel later"),
    ("ForgetsItsResidual", "state is taken over"),
    ("LazyUndeclared", "has memory is declared as it behaves"),
    ("EveryTenth", "has memory is declared as it behaves"),
    ("CountsForItself", "has memory is declared as it behaves"),
    ("ClaimsAMemory", "has memory is declared as it behaves"),
    ("DoesNotFollow", "ends in equal states send equal values"),
    ("DropsASlice", "every element is sent once"),
    ("ByChance", "every node computes the same order"),
    ("ForgetsAChunk", "trees reach every member"),
    ("FastestRelays", "trees change only when revised"),
    ("ForgetsItsTrees", "trees are taken over with the state"),
    ("ForgetsItsTransfers", "transfers follow from events and state"),
    ("KeepsTheMembers", "it makes one contribution of several"),
    ("AddsUp", "members that agree have their way"),
    ("AnyMember", "equal contributions give equal bits"),
    ("LongestFirst", "by element is declared as it behaves"),
    ("ForgetsItsRate", "the schedule sets the step size"),
    ("HidesItsState", "state goes through a checkpoint"),
    ("Normalises", "slices step like the whole"),
    ("WithBuffers", "it has parameters and no buffers"),
    ("WithDropout", "gradients are finite and repeat"),
    ("WrongScores", "scores have the shape of the labels"),
    ("Overlaps", "every element is placed once"),
    ("NoiseAsData", "made twice it is the same"),
    ("Twice", "no sample is dealt twice"),
    ("LastFirst", "a pipeline can compute it"),
    ("OtherEveryTime", "made twice a schedule is the same"),
    ("AllOnOne", "every stage has as many workers"),
    ("OtherPlaces", "made twice a placement is the same"),
    ("RefusesItsSample", "a scenario can use it"),
]
BROKEN_FIGURES = [
    ("UNKNOWN_CODEC", "every variant is a valid scenario", "fp15"),
    ("WITHOUT_PANELS", "the declaration is complete", "no panel"),
]

# ---- techniques from outside ----------------------------------------------------------------------------------------


@for_each("axis", AXES)
def test_an_example_of_the_documents_is_found_and_passes(axis: str) -> None:
    subject = find(str(EXAMPLES / GOOD[axis]))
    assert (subject.axis_name, failures(subject)) == (axis, [])


@for_each("name", RIGHT)
def test_what_broken_ones_derive_from_passes(name: str) -> None:
    assert failures(find(f"{FOLDER}/broken.py:{name}")) == []


@for_each(("name", "check"), BROKEN)
def test_a_broken_technique_fails_by_what_is_broken(name: str, check: str) -> None:
    subject = find(f"{FOLDER}/broken.py:{name}")
    (right,) = [each for each in contract_of(subject.axis_name) if each.name == check]
    (result,) = results(subject, [right])
    assert not result.passed
    assert result.expected and result.happened and result.cure


@for_each(("name", "check", "happened"), BROKEN_FIGURES)
def test_a_broken_figure_fails_by_what_is_broken(name: str, check: str, happened: str) -> None:
    _, study = find_study(f"{FOLDER}/broken.py:{name}")
    (failed,) = [result for result in results(study, requirements_of(figure)) if not result.passed]
    assert failed.check == check and happened in failed.happened


def test_every_axis_has_a_contract() -> None:
    assert set(CONTRACTS) == set(AXES)


@pytest.mark.slow  # 20 s each: real processes
@pytest.mark.parametrize("axis", ["sync", "codec", "overlay", "schedule", "placement"])
def test_a_good_technique_gives_equal_bits_in_both_worlds(axis: str) -> None:
    subject = find(str(EXAMPLES / GOOD[axis]))
    assert [result for result in results(subject, requirements_of(training)) if not result.passed] == []


def test_steps_that_are_not_declared_are_seen_in_a_training() -> None:
    subject = find(f"{FOLDER}/broken.py:UndeclaredSteps")
    (result,) = results(subject, [training.trainings_repeat_to_the_bit])
    assert not result.passed
    assert "(1, 3)" in result.happened and "(1, 1)" in result.happened


MISTAKES = [
    ("none", "", "is on the axes codec, data"),
    ("fsaa", "", "'fsaa' is not a technique of any axis"),
    ("fsa", "codec", "'fsa' is not one of none"),
    ("missing.py:Class", "", "missing.py: no such file .the path is relative to the working directory."),
    ("mine.py", "", "'mine.py' names a file, but no class in it .write mine.py:CLASS."),
    ("mine.py", "codec", r"name a class by its file, mine\.py:CLASS; see docs/axes/codec\.md"),
    ("torch.nn:Linear", "", "'torch.nn:Linear' is not a technique of any axis"),
]


@for_each(("kind", "axis", "message"), MISTAKES)
def test_what_cannot_be_tested_is_refused(kind: str, axis: str, message: str) -> None:
    with pytest.raises(AxisError, match=message):
        find(kind, axis)


def written(folder: Path, text: str) -> Subject:
    (folder / "mine.py").write_text("from dataclasses import dataclass, field\n" + text)
    return find(f"{folder}/mine.py:Mine")


def test_an_exception_names_the_line_of_the_technique(tmp_path: Path) -> None:
    shard = "from testbed.policy.shard.hashed import Hashed\nclass Mine(Hashed):\n"
    subject = written(tmp_path, f"{shard}    def slices(self, sizes, servers):\n        return sizes[1000]\n")
    (failed, _) = failures(subject)
    assert failed.happened == f"{tmp_path}/mine.py:5: IndexError: tuple index out of range"


def test_a_method_with_other_arguments_is_told_so(tmp_path: Path) -> None:
    shard = "from testbed.policy.shard.hashed import Hashed\nclass Mine(Hashed):\n"
    failed = failures(written(tmp_path, f"{shard}    def slices(self, sizes):\n        return ()\n"))[0]
    assert "takes 2 positional arguments but 3 were given" in failed.happened
    assert failed.cure == "take the arguments that docs/axes names"


@for_each(
    ("base", "body", "happened"),
    [
        ("shard.hashed:Hashed", "@dataclass\n    class Options: pass", "Mine.Options can be changed"),
        ("shard.hashed:Hashed", "@dataclass(frozen=True)\n    class Options:\n        n: int", "n has no default"),
        ("shard.hashed:Hashed", "@dataclass(frozen=True)\n    class Options:\n        n: int = 1", "'n' has no help"),
        (
            "shard.hashed:Hashed",
            "@dataclass(frozen=True)\n    class Options:\n"
            "        n: int = field(default=0, metadata={'help': '-', 'min': 1})",
            "n: 0 is not at least 1",
        ),
        ("sync.fsa:Fsa", "waits = 'yes'", "waits is 'yes', not of type bool"),
    ],
)
def test_declarations_are_looked_at(base: str, body: str, happened: str, tmp_path: Path) -> None:
    module, _, name = base.partition(":")
    subject = written(tmp_path, f"from testbed.policy.{module} import {name}\nclass Mine({name}):\n    {body}\n")
    assert [result for result in results(subject, CONTRACTS[subject.axis_name][:3]) if happened in result.happened]


# ---- shipped techniques ---------------------------------------------------------------------------------------------

SPARSE = {"ratio": 0.05, "bound": 2}
MORE: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "sync": [
        ("ssp", {"staleness": 0}),
        ("ssp", {"staleness": 1}),
        ("hfa", {"k1": 2, "k2": 3}),
        ("esync", {"fixed_steps": 3}),
    ],
    "codec": [
        ("bisparse", SPARSE),
        ("bisparse", {**SPARSE, "pull": "sparse-sum", "padded": True}),
        ("bisparse", {**SPARSE, "pull": "dense"}),
        ("dgc", {**SPARSE, "stage_rounds": 2, "warmup_stages": 2, "clip_norm": 1.0}),
        ("topk", SPARSE),
        ("topk", {**SPARSE, "pull": "changed"}),
        ("randomk", SPARSE),
        ("mstopk", SPARSE),
    ],
    "order": [("fifo", {"slice": 50_000}), ("p3", {"slice": 4000}), ("dgt", {"late": "retransmit"})],
    "shard": [("multigps", {"rule": "even"}), ("multigps", {"bound": 1}), ("hashed", {"bound": 100})],
    "overlay": [
        ("tree", {"degree": 1}),
        ("tsengine", {"pairing": "fastest"}),
        ("tsengine", {"ports": 1, "max_greed": 0.0}),
    ],
    "model": [("mlp", {"layers": 0}), ("vit", {"size": "tiny"})],
    "data": [("teacher", {"channels": 3, "noise": 0.5}), ("clicks", {"fields": 3, "noise": 0.5})],
    "split": [("dirichlet", {"alpha": 0.05}), ("by_count", {"skew": 1.5})],
    "optimizer": [
        ("sgd", {"momentum": 0.9, "nesterov": True, "schedule": "cosine", "period": 10}),
        ("adam", {"schedule": "step", "period": 3}),
        ("dcasgd", {"adaptive": True, "compensation": 2.0}),
        ("dcasgd", {"momentum": 0.9, "compensation": 0.5, "previous": "any"}),
    ],
}
MORE_SLOWLY: dict[str, list[tuple[str, dict[str, Any]]]] = {  # 0.7 to 2 s each; the options of those above, one by one
    "codec": [
        ("twobit", {"threshold": 0.25}),
        ("bisparse", {**SPARSE, "padded": True}),
        ("bisparse", {**SPARSE, "pull": "sparse-sum"}),
        ("mstopk", {**SPARSE, "selector": "exact"}),
    ],
    "model": [("resnet", {"blocks": 3})],
}
FROM_FILES = ("mnist", "fashion_mnist", "cifar10", "text", "movielens")
WITHOUT_CONTRACT = ("declared", "script", "user_program", "traced", "none", *FROM_FILES)
LARGE = dict.fromkeys(("vit", "resnet50"), pytest.mark.slow)  # 9 s and 8 s: 86 and 26 million parameters
LONG = ("sync", "codec", "model")  # up to a second each; all others together take as long


def cases_of(*axes: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for axis in axes:
        kinds = [kind for kind in AXES[axis].shipped if kind not in WITHOUT_CONTRACT or axis == "codec"]
        yield from ((axis, kind, {}) for kind in kinds)
        yield from ((axis, kind, values) for kind, values in MORE[axis])


@for_each(("axis", "kind", "values"), cases_of(*(axis for axis in MORE if axis not in LONG)))
def test_a_shipped_technique_keeps_the_contract_of_its_axis(axis: str, kind: str, values: dict[str, Any]) -> None:
    assert failures(Subject(AXES[axis], kind, values)) == []


@pytest.mark.sample(8)  # of 36, which take 14 s
@pytest.mark.parametrize(
    ("axis", "kind", "values"),
    [pytest.param(*case, marks=LARGE.get(case[1] if not case[2] else "", ())) for case in cases_of(*LONG)]
    + [pytest.param(axis, *case, marks=pytest.mark.slow) for axis, cases in MORE_SLOWLY.items() for case in cases],
    ids=lambda part: str(part).replace(" ", ""),
)
def test_a_shipped_algorithm_codec_or_model_keeps_its_contract(axis: str, kind: str, values: dict[str, Any]) -> None:
    assert failures(Subject(AXES[axis], kind, values)) == []


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


def test_the_contracts_need_no_test_library() -> None:
    for path in Path(testbed.testing.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not {"pytest", "hypothesis", "tests"} & {name.partition(".")[0] for name in names}, path
