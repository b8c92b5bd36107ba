"""Print the JSON Schema of a scenario, for completion and hover texts in an editor."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON Schema of a scenario, for editors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # none beside the common ones


def execute(arguments: argparse.Namespace) -> int:
    from testbed.scenario.load import json_schema

    del arguments
    print(json.dumps(json_schema(), indent=2))
    return 0
