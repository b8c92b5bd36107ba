"""Write a commented scenario to start from. An existing file is never overwritten."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.cli.options import Outcome
from testbed.errors import ScenarioError

HELP = "write a commented scenario to start from"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=Path, help="file to write; .yaml is added if it has no suffix")


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.scenario import starter

    path: Path = arguments.name if arguments.name.suffix else arguments.name.with_suffix(".yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(starter())
    except FileExistsError as error:
        raise ScenarioError(f"{path}: exists already; give another name") from error
    except FileNotFoundError as error:
        raise ScenarioError(f"{path}: its folder does not exist; make it first: mkdir -p {path.parent}") from error
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be written ({error.strerror})") from error
    if arguments.json:
        return {"kind": "new", "scenario": str(path)}
    print(f"{path}: written; next:\n  testbed validate {path}\n  testbed run {path}")
    return 0
