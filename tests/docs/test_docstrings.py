"""The examples in the docstrings of entry points do what they say."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import testbed.api
import testbed.codec.base
import testbed.policy.sync.base
from tests.for_each import for_each


@for_each("module", [testbed.api, testbed.codec.base, testbed.policy.sync.base])
def test_examples_of_entry_points(module: ModuleType, tmp_path: Path) -> None:
    names = {"testbed": testbed, "folder": tmp_path}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 1
    assert not result.failed
