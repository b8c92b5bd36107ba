"""Code blocks of the documents, and how each language is executed.

Blocks of one document run in order, in one folder. A comment on the line before a block says what is special about it:

    <!-- slow: 8 s -->        it takes that long, and runs with -m slow only; ``8 s, emulated`` where emulation works
    <!-- not run: REASON -->  it cannot run in a test

A block of the language ``py`` is an excerpt of the file ``title``, which must have its lines; ``…`` stands for others.
Any other block with ``title="FILE"`` is a file, which is written. Other YAML is a part of a scenario: laid over
``BASE``, it must be valid, and is ``scenario.yaml`` from then on.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from ruamel.yaml import YAML

from testbed.plan.build import build_jobs
from testbed.scenario.jobs import load_jobs
from testbed.scenario.load import loads
from testbed.scenario.look_up import network
from testbed.testing.subject import AXES
from tests.cli.forked import command, simulate_here

ROOT = Path(__file__).parents[2]
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
optimizer: {kind: adam, learning_rate: 0.002}
"""
NOTE = re.compile(r"<!-- (slow|not run): (.+?) -->")
TITLE = re.compile(r'title="([^"]+)"')
NEEDS_SHELL = re.compile(r"[|<>;&$`*?~(]")
SLOW, NOT_RUN = "slow", "not run"
EXCERPT, LEFT_OUT = "py", "…"


@dataclass(frozen=True)
class Block:
    """A fenced block: ``title`` is the file that it is, ``notes`` what a comment says about it."""

    line: int
    language: str
    title: str
    code: str
    notes: dict[str, str] = field(default_factory=dict)


def documents() -> list[Path]:
    """Return all documents of the project that people read."""
    patterns = ("*.md", "docs/**/*.md", "scenarios/**/*.md", "topologies/*.md")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def tokens_of(path: Path) -> list[Token]:
    """Return the parsed document."""
    return MarkdownIt().parse(path.read_text(encoding="utf-8"))


@cache
def blocks_of(path: Path) -> list[Block]:
    """Return the fenced blocks of a document, in order. To parse all documents takes more than a second."""
    found, notes = [], ""
    for token in tokens_of(path):
        if token.type == "fence" and token.map:
            language, _, rest = token.info.strip().partition(" ")
            title = TITLE.search(rest)
            found.append(
                Block(token.map[0] + 1, language, title[1] if title else "", token.content, dict(NOTE.findall(notes)))
            )
        notes = token.content if token.type == "html_block" else ""
    return found


class Page:
    """The blocks of one document run here; the working directory is theirs."""

    def __init__(self, name: str) -> None:
        self._name, self._names = name, {"__name__": "__main__"}

    def execute(self, block: Block) -> None:
        """Run a block. Raise ``AssertionError``, or what the block raises, if it fails."""
        if block.language == EXCERPT:
            check_excerpt(block, self._name)
        elif block.title:
            file = Path(block.title)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.code, f"{self._name}:{block.line}", "exec"), self._names)
        elif block.language == "sh":
            shell(block.code)
        if block.language == "yaml":
            check_yaml(block, self._name)
        elif block.language == "toml":
            check_entry_points(block.code)


def check_excerpt(block: Block, name: str) -> None:
    """Raise ``AssertionError`` unless the file has the lines of an excerpt, in their order."""
    rest = (ROOT / block.title).read_text(encoding="utf-8")
    for lines in block.code.split(f"{LEFT_OUT}\n"):
        _, found, rest = rest.partition(lines)
        assert found, f"{name}:{block.line}: {block.title} has no more these lines:\n{lines}"


def shell(code: str) -> None:
    """Run shell commands; where all are plain calls of the testbed, without starting an interpreter for each."""
    commands = list(_plain_calls(code))
    if not commands:
        done = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    for words in commands:
        ended = command(words, prepare=simulate_here)
        assert ended.returncode == 0, f"testbed {shlex.join(words)}\n{ended.stdout}\n{ended.stderr}"


def _plain_calls(code: str) -> Iterator[list[str]]:
    lines = code.replace("\\\n", " ").splitlines()
    parsed = [shlex.split(line, comments=True) for line in lines]
    bare = [re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line) for line in lines]
    if all(words[:1] == ["testbed"] for words in parsed if words) and not any(map(NEEDS_SHELL.search, bare)):
        yield from (words[1:] for words in parsed if words)


def check_yaml(block: Block, name: str) -> None:
    """Raise ``ScenarioError`` if a scenario, a part of one, or a network is not valid."""
    yaml: Any = YAML(typ="safe")
    content = yaml.load(block.code)
    if block.title and "data_centers" in content:
        network(block.title, [])
    elif "jobs" in content:
        Path(block.title).write_text(block.code, encoding="utf-8")
        build_jobs(load_jobs(Path(block.title)))
    elif "version" in content:
        loads(block.code, block.title or f"{name}:{block.line}", folder=Path.cwd())
    else:
        whole = yaml.load(BASE)
        for section, value in content.items():
            merged = isinstance(value, dict) and section != "topology"
            whole[section] = {**whole.get(section, {}), **value} if merged else value
        text = json.dumps(whole)
        Path("scenario.yaml").write_text(text, encoding="utf-8")
        if "sweep" in whole:
            shell("testbed sweep scenario.yaml --dry-run")
        else:
            loads(text, f"{name}:{block.line}", folder=Path.cwd())


def check_entry_points(code: str) -> None:
    """Raise ``AssertionError`` unless the groups of entry points are those of axes."""
    for group in tomllib.loads(code)["project"]["entry-points"]:
        assert group.removeprefix("testbed.") in {*AXES, "figure"}, group
