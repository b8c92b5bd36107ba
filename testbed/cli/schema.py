"""Print the JSON Schema of a scenario, for completion and hover texts in an editor; or the kinds of one axis.

In VS Code (YAML extension): `testbed schema > schema.json`, and as a scenario's first line
`# yaml-language-server: $schema=schema.json`. As a table: `testbed schema codec`, or any other axis; `testbed schema
technique` has the presets, which are values of several axes with one name.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from testbed.cli.options import Outcome
from testbed.display import look

HELP = "print the JSON Schema of a scenario, or the kinds of one axis"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "axis",
        nargs="?",
        metavar="AXIS",
        help="its kinds and their options, as a table: paradigm, sync, optimizer, codec, order, overlay, shard, "
        "aggregation, model, data, split, loading, generator, trace, schedule, placement or replicas; technique: "
        "presets, which are values of several axes",
    )


def execute(arguments: argparse.Namespace) -> Outcome:
    if arguments.axis is None:
        from testbed.scenario.load import json_schema

        print(json.dumps(json_schema(), indent=2))
        return 0

    from testbed.scenario.kinds import kinds_of

    kinds = kinds_of(arguments.axis)
    if arguments.json:
        return {"kind": "axis", "axis": arguments.axis, "kinds": [asdict(kind) for kind in kinds]}
    shown = look.table(arguments.axis, "kind, options", "default", "what it is")
    for kind in kinds:
        shown.add_row(kind.name, "", kind.about, style="bold")
        for option in kind.options:
            shown.add_row(f"  {option.name}", option.default or "(required)", option.about)
    look.console().print(shown)
    return 0
