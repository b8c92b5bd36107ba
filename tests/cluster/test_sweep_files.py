"""Files of the user's that a machine of a cluster gets by content: data, code, scripts and programs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.axes import CodeFile
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution import sweep_files
from testbed.execution.sweep_files import SentFile, copy_of, named_files, pack, unpack, with_copies
from testbed.plan.build import build_plan
from testbed.plan.code import check_code
from testbed.plan.model import Plan
from testbed.scenario.load import load
from tests.cluster.sweeping import CODE, MINE, SMALL

MODEL = "training: {model: {kind: mlp, hidden: 8}, data: digits,"


def planned(folder: Path, text: str, **files: str) -> Plan:
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    scenario = folder / "scenario.yaml"
    scenario.write_text(text)
    return build_plan(load(scenario, allow_code=True))


def moved(plan: Plan, store: Path) -> tuple[Plan, dict[str, SentFile]]:
    """The Plan as on a machine where ``store`` has the files."""
    sent = {}
    for each in named_files(plan):
        sent[each.text], content = pack(each)
        if not (store / sent[each.text].sha256).exists():
            unpack(content, store / sent[each.text].sha256)
    return with_copies(plan, {text: copy_of(file, store) for text, file in sent.items()}), sent


def test_a_plan_without_files_stays_as_it_is(tmp_path: Path) -> None:
    plan = planned(tmp_path, SMALL)
    assert named_files(plan) == []
    assert with_copies(plan, {}) == plan


def test_data_are_read_from_the_copy(tmp_path: Path) -> None:
    data = tmp_path / "texts" / "mine.txt"
    data.parent.mkdir()
    data.write_text("to be or not to be " * 50)
    text = f"training: {{model: transformer, data: {{kind: text, file: {data}, context: 8}},"
    plan = planned(tmp_path, SMALL.replace(MODEL, text))
    own, sent = moved(plan, tmp_path / "store")
    copy = Path(str(own.training.data.options["file"]))
    assert copy.read_text() == data.read_text() and copy.is_relative_to(tmp_path / "store")
    assert own.training.data.options == {**plan.training.data.options, "file": str(copy)}
    assert list(sent) == [str(data)]
    data.write_text("other")
    assert replace(own, training=plan.training) == plan


def test_code_is_imported_from_the_copy_and_checked(tmp_path: Path) -> None:
    plan = planned(tmp_path, SMALL + MINE, mine__py=CODE)
    own, _ = moved(plan, tmp_path / "store")
    (tmp_path / "mine.py").unlink()
    place, _, name = own.technique.sync_tier2.kind.rpartition(":")
    assert Path(place).read_text() == CODE and name == "Mine" and Path(place).name == "mine.py"
    assert {file.path for file in own.code} == {place}
    check_code(own)
    Path(place).write_text(CODE + "\n")
    with pytest.raises(ScenarioError, match="has changed"):
        check_code(own)


def test_a_script_goes_with_its_folder(tmp_path: Path) -> None:
    shipped = Path(sweep_files.__file__).parents[2] / "scenarios"
    scenario = next(path for path in sorted(shipped.rglob("*.yaml")) if "script:" in path.read_text())
    plan = build_plan(load(scenario, allow_code=True))
    script = Path(str(plan.training.model.options["file"]))
    folder = tmp_path / "mine"
    folder.mkdir()
    for each in script.parent.glob("*.py"):
        shutil.copy(each, folder)
    (folder / ".hidden").write_text("")
    (folder / "runs").mkdir()
    model = replace(plan.training.model, options={**plan.training.model.options, "file": str(folder / script.name)})
    own, _ = moved(replace(plan, training=replace(plan.training, model=model)), tmp_path / "store")
    copy = Path(str(own.training.model.options["file"]))
    assert copy.read_bytes() == script.read_bytes() and copy.parent != folder
    assert {path.name for path in copy.parent.iterdir()} == {path.name for path in folder.glob("*.py")}


PROGRAM = """
version: 1
name: program
seed: 1
run: {on: emulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
workload: {command: [python, train.py, --data, FOLDER/data], env: {HERE: FOLDER, OTHER: /usr}}
"""


def test_a_program_runs_in_a_copy_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    plan = planned(folder, PROGRAM.replace("FOLDER", str(folder)), train__py="print()")
    assert plan.program is not None
    own, _ = moved(plan, tmp_path / "store")
    assert own.program is not None and Path(own.program.cwd, "train.py").is_file()
    assert own.program.command == ("python", "train.py", "--data", own.program.cwd + "/data")
    assert own.program.env == {"HERE": own.program.cwd, "OTHER": "/usr"}


def test_what_is_packed_depends_on_its_content_alone(tmp_path: Path) -> None:
    packed = []
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "file").write_text("same")
        packed.append(pack(sweep_files.NamedFile("data", tmp_path / name / "data")))
    assert packed[0] == packed[1]


def test_links_bring_what_they_lead_to(tmp_path: Path) -> None:
    """Data are often a link to where a machine keeps them, and a hub's files are links to its cache."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "blob").write_text("the data")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "inside").symlink_to("outside")
    (folder / "outside").symlink_to("../cache/blob")
    (folder / "absolute").symlink_to(tmp_path / "cache" / "blob")
    (tmp_path / "data").symlink_to(folder)
    for name, inside in (("data", ("inside", "outside", "absolute")), ("folder/absolute", ("",))):
        sent, content = pack(sweep_files.NamedFile(str(tmp_path / name), tmp_path / name))
        unpack(content, tmp_path / "store" / sent.sha256)
        copy = Path(copy_of(sent, tmp_path / "store"))
        assert copy.name == Path(name).name and not copy.is_symlink()
        assert [(copy / each).read_text() for each in inside] == ["the data"] * len(inside)
    (folder / "cache").symlink_to(tmp_path / "cache")
    sweep_files._packed.cache_clear()
    with pytest.raises(ScenarioError, match=r"folder/cache: a link to a folder elsewhere"):
        pack(sweep_files.NamedFile(str(folder), folder))


def test_what_cannot_be_sent_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_files, "FOLDER_LIMIT_BYTES", 1000)
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "data").write_bytes(bytes(2000))
    script = sweep_files.NamedFile(str(tmp_path / "large" / "train.py"), tmp_path / "large", is_code_folder=True)
    with pytest.raises(ScenarioError, match=r"large: the folder of a script .* into a folder of its own"):
        pack(script)
    with pytest.raises(ScenarioError, match=r"absent: cannot be sent .*No such file"):
        pack(sweep_files.NamedFile("absent", tmp_path / "absent"))


def test_an_installed_package_must_be_the_same_there(tmp_path: Path) -> None:
    """``json`` stands for a package with techniques, installed here and there."""
    plan = planned(tmp_path, SMALL)
    here = Path(str(json.__file__))
    known = CodeFile(axis="codec", kind="json:Mine", path="/there/json/__init__.py", sha256=sweep_files.sha256_of(here))
    assert named_files(replace(plan, code=(known,))) == []
    assert with_copies(replace(plan, code=(known,)), {}).code == (replace(known, path=str(here)),)
    with pytest.raises(CapabilityError, match=r"differs from /there/json/__init__.py; install the same version"):
        with_copies(replace(plan, code=(replace(known, sha256="0"),)), {})
    with pytest.raises(CapabilityError, match=r"the module absent_package of 'absent_package:Mine' is not installed"):
        with_copies(replace(plan, code=(replace(known, kind="absent_package:Mine"),)), {})
