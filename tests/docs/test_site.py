"""The documentation site: complete, without warnings, and self-contained. Its reference comes from the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from testbed.cli.main import VERBS
from testbed.results.columns import TABLES
from testbed.scenario.kinds import kinds_of
from testbed.scenario.load import json_schema
from testbed.scenario.reading.axes import AXES
from testbed.testing.subject import AXES as OPEN_AXES
from tests.docs.blocks import ROOT, documents

pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")


def hook(name: str) -> ModuleType:
    """Load a module of docs/hooks by its path, as MkDocs does."""
    spec = util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    assert spec and spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    before = list(sys.path)
    yield hook("pages")
    sys.path[:] = before


@pytest.fixture(scope="module")
def reference(pages: ModuleType) -> dict[str, str]:
    found: dict[str, str] = pages.reference.pages()
    return found


def test_every_key_of_a_scenario_is_in_the_reference(reference: dict[str, str]) -> None:
    page, schema = reference["reference/scenario.md"], json_schema()
    for name, section in {"Scenario": schema, **schema["$defs"]}.items():
        if name.partition("_")[0] in AXES:
            continue
        rows = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        for key, value in section["properties"].items():
            (row,) = [line for line in rows.splitlines() if line.startswith(f"| `{key}` |")]
            _, _, kind, default, words, _ = re.split(r"(?<!\\)\|", row)
            assert kind.strip() and words.strip(), f"{name}.{key}"
            assert bool(default.strip()) == (key not in section.get("required", ())), f"{name}.{key}: {value}"


def test_every_technique_verb_table_and_base_class_is_in_the_reference(reference: dict[str, str]) -> None:
    for axis in AXES:
        for kind in kinds_of(axis):
            text = reference["reference/techniques.md"].partition(f"### {axis}: {kind.name}\n")[2].partition("###")[0]
            assert kind.about.split()[0].strip("`") in text
            assert [option.name for option in kind.options if f"| `{option.name}` |" not in text] == []
    assert [verb for verb in VERBS if f"## testbed {verb}\n" not in reference["reference/command.md"]] == []
    assert [name for name in TABLES if f"## {name}\n" not in reference["reference/tables.md"]] == []
    assert [name for name in OPEN_AXES if f"## {name}\n" not in reference["reference/protocols.md"]] == []


def test_links_between_documents_lead_somewhere(pages: ModuleType) -> None:
    lost = [
        f"{path.relative_to(ROOT)}: {link['target']}"
        for path in documents()
        for link in pages.LINK.finditer(path.read_text(encoding="utf-8"))
        if "://" not in link["target"]
        and not (path.parent / link["target"]).exists()
        and not link["target"].startswith("reference/")
        and "/reference/" not in link["target"]
    ]
    assert lost == []


@pytest.mark.slow  # 16 s
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in tmp_path.rglob("*.html"):
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="?https?://[^">]*', page.read_text()), page
