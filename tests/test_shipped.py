"""Which back end a scenario's file seems to name, before it is read: its host process starts meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.cli import run
from testbed.cli.main import build_parser
from testbed.execution import session
from testbed.scenario.load import load
from testbed.shipped import likely_back_end, names
from tests.for_each import for_each


@for_each(
    ("text", "found"),
    [
        ("run: {on: simulate}\n", "simulate"),
        ("name: on\nrun:\n  # where\n\n  retries: 1\n  on:   local  # no WAN\n", "local"),
        ("run: {retries: 1}\nother: {on: local}\n", "otherwise"),
        ("other: {on: local}\n", "otherwise"),
    ],
)
def test_it_is_the_word_of_the_section_run(tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "any.yaml"
    file.write_text(text)
    assert likely_back_end(file, "otherwise") == found


def test_a_file_that_cannot_be_read_names_none(tmp_path: Path) -> None:
    assert likely_back_end(tmp_path / "missing.yaml", "otherwise") == "otherwise"
    assert likely_back_end("no-such-scenario", "otherwise") == "otherwise"


@for_each("name", ["quickstart", "large/star-1000", next(name for name in names() if name.startswith("faults/"))])
def test_it_is_that_of_the_scenario(name: str) -> None:
    assert likely_back_end(name, "otherwise") == load(name, allow_code=True).run.on


@for_each(
    ("more", "started"),
    [([], [True]), (["--on", "simulate"], [False]), (["--set", "run.on=simulate"], [True, False])],
)
def test_one_host_is_started_unless_the_guess_was_wrong(
    monkeypatch: pytest.MonkeyPatch, more: list[str], started: list[bool]
) -> None:
    hosts: list[bool] = []
    for back_end in ("emulate", "simulate"):
        monkeypatch.setitem(session.IMPORTED_EARLY, back_end, ("json",))

    def start(in_sandbox: bool, _modules: object = ()) -> session.HostProcess:
        hosts.append(in_sandbox)
        raise OSError

    monkeypatch.setattr(session, "_started", start)
    with ExitStack() as stack:
        run._read(build_parser().parse_args(["run", "quickstart", *more]), stack)
    assert hosts == started
