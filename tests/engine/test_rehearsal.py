"""What a run would refuse before its first step, ``validate`` refuses: with its place, and before anything is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli.main import main
from testbed.engine.rehearsal import needs_rehearsal
from testbed.plan.build import build_plan
from testbed.scenario import loads
from tests.for_each import for_each

TEXT = """\
version: 1
name: case
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: virginia, central: true, workers: 2}, {name: tokyo, workers: 2}]
  links: [{between: [virginia, tokyo], rate: 20 Mbit/s, delay: 50 ms}]
training: {model: mlp, data: digits, rounds: 2}
"""
MODEL = """
from dataclasses import dataclass
from torch import nn
from testbed.training.models.base import Model

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(64, 10), nn.Linear(64, 10)
    def forward(self, inputs):
        return self.used(inputs.flatten(1))

class Mine(Model):
    @dataclass(frozen=True, slots=True)
    class Options:
        pass
    @staticmethod
    def build(options, input_shape, classes):
        return BUILT
"""
NORM = "nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))"


@for_each(
    "settings, refused",
    [
        (
            "training.split={kind: by_count, shares: '4 0 1 1'}",
            "by_count' leaves virginia/worker1 of 4 without a sample",
        ),
        ("training.split={kind: dirichlet, alpha: 0.01};data_centers[*].workers=32", "without a sample, and others in"),
        ("training.split={kind: by_count, shares: '1 2'}", "training.split.shares: has 2 numbers, but 4 workers train"),
        ("training.data={kind: teacher, train_samples: 3}", "3 samples are too few for 4 workers"),
        ("training.data={kind: text, file: FOLDER/gone.txt};training.model=transformer", "gone.txt' "),
        ("training.data={kind: mnist, folder: FOLDER}", "lacks files"),
        ("training.data={kind: teacher, side: 3};training.model=cnn", "images of side 3 are too small"),
        (
            "training.data={kind: teacher, side: 9};training.model.kind=vit;training.model.patch=4",
            "not a multiple of patches",
        ),
        ("sync={kind: diloco, h: 8, fragments: 8};optimizer={kind: sgd, at: worker}", "the model has 4 tensors, but 8"),
        (
            "training.data={kind: tokens, context: 8};training.model=transformer;training.split=by_class",
            "text has none",
        ),
        ("training.model=MINE:lambda x: x", "returns a function; return a torch.nn.Module"),
        (f"training.model=MINE:{NORM}", "has buffers"),
        ("training.model=MINE:Twice()", "does not use the parameter 'model.spare.weight'"),
        ("training.model=MINE:nn.Sequential(nn.Flatten(), nn.Linear(63, 10))", "shapes cannot be multiplied"),
        ("training.model=MINE:undefined(1)", "name 'undefined' is not defined"),
    ],
)
def test_validate_refuses_what_the_run_would(
    settings: str, refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = settings.replace("FOLDER", str(tmp_path)).split(";")
    if "MINE:" in settings:
        Path("mine.py").write_text(MODEL.replace("BUILT", settings.partition("MINE:")[2]))
        changes = ["training.model=./mine.py:Mine"]
    Path("s.yaml").write_text(TEXT)
    arguments = [word for change in changes for word in ("--set", change)]
    for command in (["validate", "s.yaml"], ["run", "s.yaml", "--out", "made"]):
        assert main([*command, *arguments]) == 2
        assert refused in capsys.readouterr().err
    assert not Path("made").exists()


@for_each(
    "setting, needed",
    [
        ("training.rounds=3", False),
        ("training.split=by_class", False),
        ("training.model=cnn", False),
        ("training.split.kind=dirichlet", True),
        ("training.data.kind=mnist", True),
        ("data_centers[*].workers=900", True),
    ],
)
def test_data_are_read_where_rules_cannot_tell(setting: str, needed: bool) -> None:
    assert needs_rehearsal(build_plan(loads(TEXT, "s.yaml", [setting]))) is needed


def test_programs_and_scripts_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for workload, said, code in (
        ("{command: [no-such-program, x]}", "there is no program 'no-such-program' on the path", 3),
        ("{script: gone.py}", "s.yaml:8:20: workload.script: gone.py: no such file (the path", 2),
        ("{script: ../gone.py}", "lies outside the scenario's folder (copy it into that folder", 2),
    ):
        text = TEXT.rpartition("training:")[0].replace("simulate", "local")
        Path("s.yaml").write_text(f"{text}workload: {workload}\n")
        for command in (["validate", "s.yaml"], ["run", "s.yaml", "--out", "made"]):
            assert main(command) == code
            assert said in capsys.readouterr().err
        assert not Path("made").exists()


WITHOUT_TORCH = """
import sys
from testbed.cli.main import main
for command in {commands}:
    assert main(command) == 0, command
heavy = {heavy} & {{*sys.modules}}
assert not heavy, heavy
"""


def test_commands_that_compute_nothing_import_no_torch(tmp_path: Path) -> None:
    """Afterwards, a model of one's own costs ``validate`` the import of torch alone.

    Neither torch's compiler nor the counting of operations, which import sympy and more.
    """
    (tmp_path / "s.yaml").write_text(TEXT)
    (tmp_path / "rtt_ms.csv").write_text(",a,b\na,0,20\nb,20,0\n")
    commands = [
        ["validate", "s.yaml"],
        ["validate", "quickstart"],
        ["plan", "s.yaml"],
        ["topology", "hmc4"],
        ["topology", "import", "rtt_ms.csv", "--set", "rate=1 Gbit/s"],
        ["trace", "lte-drive"],
        ["schema"],
        ["sweep", "s.yaml", "--set", "codec=none,fp16", "--seeds", "5", "--dry-run"],
        ["scenarios"],
    ]
    code = WITHOUT_TORCH.format(commands=commands, heavy={"torch", "pandas", "matplotlib"})
    (tmp_path / "mine.py").write_text(MODEL.replace("BUILT", "nn.Sequential(nn.Flatten(), nn.Linear(64, 10))"))
    commands = [["validate", "s.yaml", "--set", "training.model=./mine.py:Mine"]]
    heavy = {"torch._dynamo", "torch._inductor", "sympy", "pandas", "matplotlib", "simpy", "triton"}
    code += WITHOUT_TORCH.format(commands=commands, heavy=heavy)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
