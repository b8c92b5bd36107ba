"""List the shipped scenarios, or copy one with the files beside it, to edit and run."""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
from pathlib import Path

from testbed.cli.options import Outcome
from testbed.errors import ScenarioError

HELP = "list the shipped scenarios, or copy one"
_FOLDER = re.compile(r"\b(?:cwd|trace): ([\w-]+)")  # the working directory of a program, or the folder of a job's trace
_BESIDE = ("*.py", "*.csv", "*.gml", "*.graphml", "traces", "topologies")  # files and folders that scenarios name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="scenario to copy")
    parser.add_argument("--copy", type=Path, metavar="DIR", help="where to; default: the working directory")


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.shipped import names, path_of

    if arguments.name is None:
        return _list(names(), arguments.json)
    source = path_of(arguments.name)
    folder = arguments.copy or Path.cwd()
    copies = {folder / file.relative_to(source.parent): file for file in (source, *_beside(source))}
    there = [copy for copy in copies if copy.exists()]
    if taken := [copy for copy in there if not filecmp.cmp(copies[copy], copy, shallow=False)]:
        cure = "give another directory with --copy"
        raise ScenarioError([f"{copy}: exists already, with other content; {cure}" for copy in taken])
    for copy in copies.keys() - there:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(copies[copy], copy)
    if arguments.json:
        return {"kind": "scenarios", "written": [str(copy) for copy in copies]}
    print(f"written: {', '.join(map(str, copies))}; next: testbed run {folder / source.name}")
    return 0


def _list(found: dict[str, Path], as_json: bool) -> Outcome:
    from testbed.display import look

    about = {name: _about(file) for name, file in found.items()}
    if as_json:
        return {"kind": "scenarios", "scenarios": about}
    look.console().print(look.table("", "scenario", "about", rows=about.items()))
    print("testbed run NAME runs one, testbed scenarios NAME copies it")
    return 0


def _about(file: Path) -> str:
    """Return the first sentence of the comment at the top of a scenario."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines).partition(". ")[0].partition(": ")[0].rstrip(".")


def _beside(source: Path) -> list[Path]:
    """Return the files in or below the scenario's folder that the scenario names."""
    text = source.read_text(encoding="utf-8")
    folders = [source.parent / name for name in _FOLDER.findall(text)]
    patterns = (*_BESIDE, *(folder.name for folder in folders))
    files = [
        file
        for pattern in patterns
        for found in source.parent.glob(pattern)
        for file in ([found] if found.is_file() else sorted(found.iterdir()))
    ]
    return [file for file in files if file.is_file() and (file.name in text or file.parent in folders)]
