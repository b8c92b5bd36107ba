"""The list of mutations names what is there; that each is noticed takes minutes."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from tests.faults.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_has_a_mechanism_and_tests(name: str) -> None:
    module, _, path = MUTATIONS[name].place.partition(":")
    place = import_module(module)
    for part in path.split("."):
        place = getattr(place, part)
    for test in MUTATIONS[name].tests:
        file, _, function = test.partition("::")
        assert not function or f"def {function}(" in (ROOT / file).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_is_noticed(name: str) -> None:
    command = [sys.executable, "-m", "tests.faults.mutations", "--only", name]
    assert subprocess.run(command, cwd=ROOT, timeout=200, check=False).returncode == 0
