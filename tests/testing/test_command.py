"""``testbed check``: a line per requirement, and what was expected, what happened and the cure where one is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import main
from testbed.plan.build import build_plan
from testbed.scenario import load
from tests.scenario.test_bad import GOOD as GOOD_SCENARIO
from tests.testing.test_contracts import EXAMPLES, FIGURE, FOLDER, GOOD


def broken(name: str) -> str:
    return f"{FOLDER}/broken.py:{name}"


def test_a_line_per_requirement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / GOOD["shard"]), "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("(shard): all 5 checks passed")
    assert [line[:4] for line in lines[:-1]] == ["ok  "] * 5


def test_what_was_expected_what_happened_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken("WrongSize"), "--quick"]) == 1
    text = capsys.readouterr().out
    assert "FAIL  payloads have the declared size\n        expected: A tensor on the meta device gives parts" in text
    assert "        happened: 4 bytes [(torch.float32, (1,))], but 0 on the meta device\n        cure: give" in text


def test_one_fault_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken("WithBuffers"), "--quick"]) == 1
    output = capsys.readouterr().out
    assert output.count("has buffers") == output.count("cure: write nn.GroupNorm") == 1
    assert output.count("        as 'scores have the shape of the labels'") == output.count("FAIL") - 1 > 1


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken("DropsASlice"), "--quick", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["axis"], content["passed"]) == ("order", False)
    (failed,) = [check for check in content["checks"] if check["check"] == "every element is sent once"]
    assert set(failed) == {"check", "passed", "expected", "happened", "cure"} and not failed["passed"]


def test_options_are_set_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "multigps", "--quick", "--set", "rule=even", "--set", "bound=50"]) == 0
    assert main(["check", "multigps", "--quick", "--set", "rull=even"]) == 2
    assert "rull" in capsys.readouterr().err


def test_a_figure_is_named_with_its_axis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / FIGURE), "--axis", "figure"]) == 0
    assert main(["check", str(EXAMPLES / FIGURE), "--axis", "figure", "--file", "x"]) == 2
    assert "has no effect on the axis figure" in capsys.readouterr().err


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


SENSORS = """
from dataclasses import dataclass
import torch
from testbed.training.datasets.base import Dataset, DataSource


class Sensors(DataSource):
    @dataclass(frozen=True, slots=True)
    class Options:
        pass

    @staticmethod
    def load(options, seed):
        inputs = torch.arange(800.0).reshape(40, 1, 1, 20) / 800
        return Dataset(inputs[:30], torch.arange(30) % 5, inputs[30:], torch.arange(10) % 5, 5)
"""
BOUND = """
    @classmethod
    def sample_bound(cls, options):
        return (1, 1, 20), 5
"""


ELSEWHERE = SENSORS.replace("inputs = ", "raise FileNotFoundError('sensors.npz')\n        inputs = ")


@pytest.mark.parametrize(
    ("source", "is_known"),
    [(SENSORS, True), (SENSORS + BOUND, True), (ELSEWHERE, False), (ELSEWHERE + BOUND, True)],
)
def test_the_size_of_samples_is_declared_or_found_by_loading(source: str, is_known: bool, tmp_path: Path) -> None:
    """Where it is unknown, deadlines are those of a model much larger than it is, which a Plan may not hide."""
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "s.yaml").write_text(GOOD_SCENARIO.replace("cnn, data: digits", "mlp, data: './mine.py:Sensors'"))
    told = "training.data: the size of the samples of 'mine.py:Sensors' is unknown, as they could not be loaded here; "
    warnings = build_plan(load(tmp_path / "s.yaml", allow_code=True)).warnings
    assert any(each.startswith(told) for each in warnings) == (not is_known)


def test_own_models_and_samples_are_simulated_packet_by_packet(tmp_path: Path) -> None:
    """A model of 2 kB was predicted as the largest one that is expected, and simulated as flows."""
    (tmp_path / "mine.py").write_text(SENSORS)
    (tmp_path / "s.yaml").write_text(GOOD_SCENARIO)
    model = f"{EXAMPLES / 'narrow_perceptron.py'}:NarrowPerceptron"
    overrides = (
        f"training.model={model}",
        "training.data=./mine.py:Sensors",
        "links[0].rate=100 kbit/s",
        "rounds=400",
        "run.on=simulate",
    )
    plan = build_plan(load(tmp_path / "s.yaml", overrides, allow_code=True))
    assert plan.simulation.network == "packets"
