"""The scenarios that come with the testbed, by name: ``quickstart``, ``sync/hfa``."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.suggest import suggestion

_ON = re.compile(r"^run:(?:.*\n(?=[ #\n]))*?.*?\bon: *([a-z]+)", re.MULTILINE)
FOLDER = Path(__file__).parents[1] / "scenarios"


@cache
def names() -> dict[str, Path]:
    """Return the file of every shipped scenario, by its path below ``scenarios`` without the ending."""
    scenarios = (file for file in sorted(FOLDER.rglob("*.yaml")) if b"\nversion:" in b"\n" + file.read_bytes())
    return {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in scenarios}


def likely_back_end(name: str | Path, otherwise: str) -> str:
    """Guess the back end of a scenario's file from ``run: {on:``, without the reader, whose imports take a second.

    ``otherwise``: returned if the file names none. Overrides, bases and errors may lead to another back end.
    """
    with suppress(ScenarioError, OSError):
        text = path_of(name).read_text(encoding="utf-8", errors="replace")
        if found := _ON.search(text):
            return found[1]
    return otherwise


def path_of(name: str | Path) -> Path:
    """Return the file of a path or of a shipped scenario's name. Raise ``ScenarioError`` for a name that is neither."""
    path = Path(name)
    if path.suffix or (path.exists() and not path.is_dir()):  # runs of a scenario may be in a directory of its name
        return path
    known = names()
    if str(name) in known:
        return known[str(name)]
    if path.is_dir():  # the reader refuses a directory
        return path
    hint = suggestion(str(name), list(known)) or "`testbed scenarios` lists the shipped ones"
    raise ScenarioError(f"{name}: neither a file nor a shipped scenario ({hint})")
