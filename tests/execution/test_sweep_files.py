"""The files that a scenario names, on their way to machines that lack them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.execution import sweep_files
from testbed.execution.sweep_files import named_files, stage, with_copies
from testbed.plan.model import Plan
from testbed.settings.job import Choice, Program
from tests.results.fake_run import make_plan


def plan_of(data: Choice | None = None, program: Program | None = None) -> Plan:
    plan = make_plan()
    training = replace(plan.training, model=Choice(kind="mlp"), data=data or plan.training.data)
    return replace(plan, training=training, program=program)


def text(path: Path) -> Choice:
    return Choice(kind="text", options={"file": str(path)})


def test_a_file_of_data_is_copied_and_named_in_the_plan(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("to be or not to be")
    plan, there = plan_of(text(tmp_path / "mine.txt")), tmp_path / "there"
    places = stage(named_files(plan), there)
    own = with_copies(plan, {text: str(there / inside) for text, inside in places.items()})
    copy = Path(own.training.data.options["file"])
    assert copy.read_text() == "to be or not to be" and copy.name == "mine.txt" and copy.is_relative_to(there)
    with pytest.raises(ScenarioError, match=r"gone\.txt: cannot be sent to the machines of a cluster"):
        stage(named_files(plan_of(text(tmp_path / "gone.txt"))), tmp_path / "elsewhere")


def test_large_data_is_expected_at_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.txt").write_text("to be or not to be")
    plan = plan_of(text(tmp_path / "large.txt"))
    monkeypatch.setattr(sweep_files, "SENT_LIMIT_BYTES", 10)
    assert stage(named_files(plan), tmp_path / "there") == {}
    assert with_copies(plan, {}).training.data == plan.training.data


def test_the_folder_of_a_command_is_copied_without_results_and_hidden_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "job"
    for name in ("main.py", "lib/util.py", ".git/config", "runs/a/result.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "shared.py").write_text("of elsewhere")
    (folder / "lib/shared.py").symlink_to(tmp_path / "shared.py")
    program = Program(
        command=("python", f"{folder}/main.py"),
        first=(),
        workers=(1,),
        cwd=str(folder),
        env={"LIB": f"{folder}/lib"},
        listens=0,
        metrics="",
        timeout_s=1.0,
        ends="all",
    )
    plan, there = plan_of(program=program), tmp_path / "there"
    (named, inside), *_ = stage(named_files(plan), there).items()
    copy = there / inside
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()) == [
        "lib/shared.py",
        "lib/util.py",
        "main.py",
    ]
    assert (copy / "lib/shared.py").read_text() == "of elsewhere"
    own = with_copies(plan, {named: str(copy)}).program
    assert own is not None and own.command == ("python", f"{copy}/main.py")
    assert (own.cwd, own.env) == (str(copy), {"LIB": f"{copy}/lib"})
    monkeypatch.setattr(sweep_files, "SENT_LIMIT_BYTES", 10)
    with pytest.raises(ScenarioError, match="move the script into a folder of its own"):
        stage(named_files(plan), tmp_path / "too-large")
