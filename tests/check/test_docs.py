"""The pages in docs/axes: their examples are the tested files, their scenarios are valid, their tables are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from testbed.check.subject import AXES
from testbed.scenario.load import loads
from tests.check.test_examples import EXAMPLES, FIGURE, GOOD

DOCS = Path(__file__).parents[2] / "docs" / "axes"
BASE = """
version: 1
name: docs
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: hub, central: true, workers: 2}, {name: east, workers: 2}]
  links: [{between: [hub, east], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, batch: 16, rounds: 4, evaluate_every: 4}
device: {pace: paced, step_time: 10 ms}
"""


def blocks(axis: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / f"{axis}.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "kind"), [*GOOD.items(), ("figure", FIGURE)])
def test_the_example_is_the_tested_file(page: str, kind: str) -> None:
    (code,) = blocks(page, "python")
    assert code == (EXAMPLES / kind.partition(":")[0]).read_text()


@pytest.mark.parametrize("axis", AXES)
def test_the_scenario_is_valid(axis: str) -> None:
    (snippet,) = blocks(axis, "yaml")
    yaml: Any = YAML(typ="safe")
    document, change = yaml.load(BASE), yaml.load(snippet)
    for section, content in change.items():
        whole = section == "topology" or not isinstance(content, dict)
        document[section] = content if whole else {**document.get(section, {}), **content}
    loads(json.dumps(document), f"docs/axes/{axis}.md", folder=EXAMPLES)


@pytest.mark.parametrize("axis", AXES)
def test_every_method_and_declaration_is_explained(axis: str) -> None:
    text = (DOCS / f"{axis}.md").read_text()
    base = AXES[axis].base_class()
    contract = [each for each in (base, *base.__subclasses__()) if each.__module__ == base.__module__]
    public = {name for each in contract for name in vars(each) if not name.startswith("_")} - {"Options"}
    assert [name for name in sorted(public) if f"`{name}" not in text] == []
