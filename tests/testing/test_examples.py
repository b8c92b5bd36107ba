"""Techniques from outside: good ones pass ``testbed check``; each broken one fails in the check of what is broken."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from testbed.axes import AxisError
from testbed.cli.main import main
from testbed.testing import training, verdict
from testbed.testing.catalogue import checks_in, checks_of
from testbed.testing.subject import AXES, Subject, find
from tests.for_each import for_each

EXAMPLES = Path(__file__).parent / "examples"
GOOD = {
    "sync": "warm_hfa.py:WarmHfa",
    "codec": "sign_sgd.py:SignSgd",
    "order": "biases_first.py:BiasesFirst",
    "overlay": "chain.py:Chain",
    "shard": "round_robin.py:RoundRobin",
    "model": "narrow_perceptron.py:NarrowPerceptron",
    "data": "stripes.py:Stripes",
    "split": "dealt_cards.py:DealtCards",
    "optimizer": "sign_step.py:SignStep",
    "topology": "pairs.py:Pairs",
    "trace": "halves.py:Halves",
}
MORE_GOOD = [  # beside broken ones that derive from them
    "delays.py:Delays",
    "codec_delivers_other_numbers.py:Halves",
    "codec_sends_twice.py:Quarter",
    "codec_forgets_its_mirror.py:Differences",
    "optimizer_normalises.py:NormalisesWholes",
]
TRAINED = [axis for axis in AXES if axis not in ("topology", "trace")]
BROKEN = [
    ("sync_answers_twice.py:AnswersTwice", "every push is aggregated once and answered once"),
    ("sync_undeclared_steps.py:UndeclaredSteps", "every push is aggregated once and answered once"),
    ("sync_shared_state.py:SharedState", "instances share no state"),
    ("sync_shared_state.py:SharedState", "members are lost and join again"),
    ("sync_counts_calls.py:CountsCalls", "local steps are pure and at least one"),
    ("codec_wrong_size.py:WrongSize", "payloads have the declared size"),
    ("codec_mutates_its_input.py:MutatesItsInput", "encoding changes neither input nor earlier payloads"),
    ("codec_not_deterministic.py:NotDeterministic", "the same numbers give the same bytes"),
    ("codec_not_deterministic.py:SharesAStream", "keys share no memory"),
    ("codec_does_not_follow.py:DoesNotFollow", "ends in equal states send equal values"),
    ("codec_not_elementwise.py:NotElementwise", "elementwise is declared as it behaves"),
    ("codec_loses_the_residual.py:LosesTheResidual", "what is held back is sent later"),
    ("codec_loses_the_residual.py:RemembersNaN", "non finite numbers never travel later"),
    ("codec_loses_the_residual.py:RefusesTheNext", "non finite numbers never travel later"),
    ("codec_delivers_other_numbers.py:WrongSign", "what is sent arrives"),
    ("codec_delivers_other_numbers.py:Zeros", "what is sent arrives"),
    ("codec_delivers_other_numbers.py:Thousandths", "what is sent arrives"),
    ("codec_delivers_other_numbers.py:Twofold", "what is sent arrives"),
    ("codec_delivers_other_numbers.py:ZerosAsValues", "what is sent arrives"),
    ("codec_delivers_other_numbers.py:NotExact", "exact is declared as it behaves"),
    ("codec_sends_twice.py:SendsTwice", "nothing is sent twice"),
    ("codec_sends_twice.py:KeepsWhatItSends", "nothing is sent twice"),
    ("codec_sends_twice.py:ForgetsItsResidual", "state is taken over"),
    ("codec_forgets_its_mirror.py:ForgetsItsMirror", "state is taken over"),
    ("sync_forgets_reports.py:ForgetsReports", "state is taken over"),
    ("overlay_forgets_rates.py:ForgetsItsTrees", "trees are taken over with the state"),
    ("overlay_forgets_rates.py:ForgetsItsTransfers", "transfers are taken over with the state"),
    ("order_drops_a_slice.py:DropsASlice", "every element is sent once"),
    ("order_by_chance.py:ByChance", "every node computes the same order"),
    ("order_other_channels.py:OtherChannels", "best effort is declared with its channels"),
    ("overlay_forgets_a_chunk.py:ForgetsAChunk", "trees reach every member"),
    ("overlay_changes_unannounced.py:ChangesUnannounced", "trees change only when revised"),
    ("shard_overlaps.py:Overlaps", "every element is placed once"),
    ("shard_remembers.py:Remembers", "every node computes the same placement"),
    ("model_with_buffers.py:WithBuffers", "it has parameters and no buffers"),
    ("model_with_dropout.py:WithDropout", "gradients are finite and repeat"),
    ("model_wrong_scores.py:WrongScores", "scores have the shape of the labels"),
    ("data_ignores_the_seed.py:IgnoresTheSeed", "the seed alone decides the samples"),
    ("data_wrong_labels.py:WrongLabels", "labels count the classes"),
    ("split_twice.py:Twice", "shares are disjoint and not empty"),
    ("split_by_chance.py:ByChance", "the seed alone decides"),
    ("optimizer_forgets_its_rate.py:ForgetsItsRate", "the schedule sets the step size"),
    ("optimizer_hides_its_state.py:HidesItsState", "state goes through a checkpoint"),
    ("optimizer_normalises.py:Normalises", "slices step like the whole"),
    ("optimizer_wants_backups.py:WantsBackups", "backups are declared as they are used"),
    ("topology_counts_rows.py:CountsRows", "lines are counted in the file"),
    ("topology_forgets_the_unit.py:ForgetsTheUnit", "it gives a whole network"),
    ("topology_remembers.py:Remembers", "reading twice gives the same"),
    ("topology_unpacks.py:Unpacks", "damage is refused with line and cure"),
    ("trace_ignores_the_unit.py:IgnoresTheUnit", "declared settings have an effect"),
    ("trace_names_no_line.py:NamesNoLine", "damage is refused with line and cure"),
    ("trace_of_anything.py:OfAnything", "it gives a valid trace"),
    ("trace_takes_any_number.py:TakesAnyNumber", "impossible numbers are refused"),
    ("trace_without_end.py:WithoutEnd", "it gives a valid trace"),
]


FIGURE = "bytes_of_codecs.py:BYTES_OF_CODECS"
BROKEN_FIGURES = [
    ("figure_unknown_codec.py:UNKNOWN_CODEC", "every variant is a valid scenario", "fp15"),
    ("figure_without_panels.py:WITHOUT_PANELS", "the declaration is complete", "none"),
]


def test_one_fault_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / "model_with_buffers.py:WithBuffers"), "--quick"]) == 1
    output = capsys.readouterr().out
    assert output.count("has buffers") == output.count("cure: write nn.GroupNorm") == 1
    assert output.count("        as 'scores have the shape of the labels'") == output.count("FAIL") - 1 > 1


def failures(kind: str) -> dict[str, verdict.Result]:
    """Return the failed checks of the contract by name, without trainings."""
    subject = find(str(EXAMPLES / kind))
    results = verdict.run(subject, checks_of(subject.axis.name, with_training=False))
    return {result.check: result for result in results if not result.passed}


@for_each("axis", AXES)
def test_a_good_technique_is_found_and_passes(axis: str) -> None:
    assert find(str(EXAMPLES / GOOD[axis])).axis.name == axis
    assert failures(GOOD[axis]) == {}


@for_each("kind", MORE_GOOD)
def test_what_broken_ones_derive_from_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.testing.codec.DAMAGES", 13)
    assert failures(kind) == {}


@for_each(("kind", "check"), BROKEN)
def test_a_broken_technique_fails_in_the_right_check(kind: str, check: str) -> None:
    subject = find(str(EXAMPLES / kind))
    (right,) = [each for each in checks_of(subject.axis.name, with_training=False) if verdict.name_of(each) == check]
    (result,) = verdict.run(subject, [right])
    assert not result.passed
    assert result.expected and result.happened and result.cure


def test_there_are_two_broken_techniques_of_every_axis() -> None:
    axes = Counter(find(str(EXAMPLES / kind)).axis.name for kind in {kind for kind, _ in BROKEN})
    assert {axis: count for axis, count in axes.items() if count < 2} == {} and set(axes) == set(AXES)


def test_every_example_is_one_tested_file() -> None:
    tested = {
        kind.partition(":")[0]
        for kind in (*GOOD.values(), *MORE_GOOD, FIGURE, *(kind for kind, *_ in BROKEN + BROKEN_FIGURES))
    }
    assert tested == {path.name for path in EXAMPLES.glob("*.py")}


@for_each("path", sorted(EXAMPLES.glob("*.py")))
def test_examples_import_public_modules_only(path: Path) -> None:
    modules = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    names = [name for module in modules for name in str(module).split(".")]
    assert not [name for name in names if name.startswith("_") or name == "tests"]
    assert {str(module).partition(".")[0] for module in modules} <= {
        "analysis", "testbed", "topologies", "torch", "numpy", "dataclasses", "collections", "typing", "math",
    }  # fmt: skip


# ---- the trainings --------------------------------------------------------------------------------------------------


def test_the_warm_up_takes_its_steps_in_the_virtual_world() -> None:
    subject = find(str(EXAMPLES / GOOD["sync"]))
    steps = training.trained(subject, "simulate").steps
    expected = [(round_, 5 if round_ < 6 else 3) for round_ in range(8)]
    assert steps == dict.fromkeys(("hub/worker0", "hub/worker1", "east/worker0", "east/worker1"), expected)
    assert all(result.passed for result in verdict.run(subject, checks_in(training)[:2]))


@for_each("axis", [*[axis for axis in TRAINED if axis != "sync"]][::3])
def test_a_good_technique_trains_in_the_virtual_world(axis: str) -> None:
    subject = find(str(EXAMPLES / GOOD[axis]))
    assert [result for result in verdict.run(subject, checks_in(training)[:2]) if not result.passed] == []


@pytest.mark.slow  # 20 s each: real processes
@pytest.mark.parametrize("axis", ["sync", "codec", "overlay"])
def test_a_good_technique_gives_equal_bits_in_both_worlds(axis: str) -> None:
    subject = find(str(EXAMPLES / GOOD[axis]))
    assert [result for result in verdict.run(subject, checks_in(training)) if not result.passed] == []


def test_steps_that_are_not_declared_are_seen_in_a_training() -> None:
    subject = find(str(EXAMPLES / "sync_undeclared_steps.py:UndeclaredSteps"))
    (result,) = verdict.run(subject, [training.training_takes_the_declared_steps_in_the_virtual_world])
    assert not result.passed
    assert "(1, 3)" in result.happened and "(1, 1)" in result.expected


# ---- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_line_per_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / GOOD["shard"]), "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("(shard): all 5 checks passed")
    assert [line[:4] for line in lines[:-1]] == ["ok  "] * 5


def test_the_command_says_what_was_expected_what_happened_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / "codec_wrong_size.py:WrongSize"), "--quick"]) == 1
    text = capsys.readouterr().out
    assert "FAIL  payloads have the declared size\n        expected: a payload of 0 bytes for 1 elements" in text
    assert "        happened: 4 bytes\n        cure: give meta parts" in text


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / "order_drops_a_slice.py:DropsASlice"), "--quick", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["axis"], content["passed"]) == ("order", False)
    (failed,) = [check for check in content["checks"] if check["check"] == "every element is sent once"]
    assert set(failed) == {"check", "passed", "expected", "happened", "cure"} and not failed["passed"]


def test_options_are_set_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "multigps", "--quick", "--set", "rule=even", "--set", "bound=50"]) == 0
    assert main(["check", "multigps", "--quick", "--set", "rull=even"]) == 2
    assert "rull" in capsys.readouterr().err


@for_each(("kind", "check", "happened"), BROKEN_FIGURES)
def test_a_broken_figure_fails_in_the_right_check(
    kind: str, check: str, happened: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(EXAMPLES / kind), "--axis", "figure", "--quick", "--json"]) == 1
    (failed,) = [each for each in json.loads(capsys.readouterr().out)["checks"] if not each["passed"]]
    assert failed["check"] == check and happened in failed["happened"]


def test_a_reader_reads_the_file_that_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, codec = str(EXAMPLES / GOOD["topology"]), str(EXAMPLES / GOOD["codec"])
    assert main(["check", pairs, "--file", str(EXAMPLES / "my.net")]) == 0
    for arguments, told in (
        ((pairs, "--file", str(tmp_path / "none.net")), "none.net: No such file"),
        (("graphml",), "has no 'sample' to read; set it in the class, or give --file FILE"),
        ((codec, "--file", pairs), "has no effect on the axis codec"),
    ):
        assert main(["check", *arguments]) == 2
        assert told in capsys.readouterr().err


MISTAKES: list[tuple[str, str, str]] = [
    ("none", "", "is on the axes codec, data"),
    ("fsaa", "", "'fsaa' is a technique of no axis"),
    ("fsa", "codec", "'fsa' is not one of none"),
    ("missing.py:Class", "", "missing.py: no such file"),
    ("torch.nn:Linear", "", "'torch.nn:Linear' is a technique of no axis"),
]


@for_each(("kind", "axis", "message"), MISTAKES)
def test_what_cannot_be_checked_is_refused(kind: str, axis: str, message: str) -> None:
    with pytest.raises(AxisError, match=message):
        find(kind, axis)


def write(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return f"{folder}/mine.py:Mine"


def test_an_exception_names_the_line_of_the_technique(tmp_path: Path) -> None:
    kind = write(
        tmp_path,
        "from dataclasses import dataclass\n"
        "from testbed.policy.shard.base import Shard\n"
        "class Mine(Shard):\n"
        "    @dataclass(frozen=True)\n"
        "    class Options: pass\n"
        "    def __init__(self, options): pass\n"
        "    def slices(self, sizes, servers):\n"
        "        return sizes[1000]\n",
    )
    subject = find(kind)
    (result,) = verdict.run(subject, checks_of("shard", with_training=False)[3:4])
    assert result.happened == "mine.py line 8: IndexError: tuple index out of range"


@for_each(
    ("options", "check"),
    [
        ("@dataclass\n    class Options: pass", "the options are a frozen dataclass with defaults"),
        (
            "@dataclass(frozen=True)\n    class Options:\n        n: int",
            "the options are a frozen dataclass with defaults",
        ),
        ("@dataclass(frozen=True)\n    class Options:\n        n: int = 1", "every option says what it is"),
        (
            "@dataclass(frozen=True)\n    class Options:\n"
            "        n: int = field(default=0, metadata={'help': '-', 'min': 1})",
            "every option says what it is",
        ),
    ],
)
def test_declarations_are_checked(options: str, check: str, tmp_path: Path) -> None:
    kind = write(
        tmp_path,
        "from dataclasses import dataclass, field\n"
        "from testbed.policy.shard.hashed import Hashed\n"
        f"class Mine(Hashed):\n    {options}\n",
    )
    subject: Any = find(kind)
    failed = [
        result.check
        for result in verdict.run(subject, checks_of("shard", with_training=False)[:2])
        if not result.passed
    ]
    assert check in failed


def test_a_technique_of_a_wrong_type_of_declaration_fails(tmp_path: Path) -> None:
    kind = write(
        tmp_path,
        "from testbed.policy.sync.fsa import Fsa\nclass Mine(Fsa):\n    waits = 'yes'\n",
    )
    subject: Subject = find(kind)
    (*_, result) = verdict.run(subject, checks_of("sync", with_training=False)[:3])
    assert not result.passed and "waits of type bool" in result.expected
