"""Write a commented scenario to begin with. An existing file is never overwritten."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from testbed.errors import ScenarioError

HELP = "write a commented scenario to begin with"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=Path, help="file to write; .yaml is added where it has no ending")


def execute(arguments: argparse.Namespace) -> int:
    from testbed.scenario.write import starter

    path: Path = arguments.name if arguments.name.suffix else arguments.name.with_suffix(".yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(starter())
    except FileExistsError as error:
        raise ScenarioError(f"{path}: exists already; give another name") from error
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be written ({error.strerror})") from error
    print(json.dumps({"kind": "new", "scenario": str(path)}) if arguments.json else f"{path}: written; next:\n"
          f"  testbed validate {path}\n  testbed run {path}")  # fmt: skip
    return 0
