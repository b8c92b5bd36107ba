"""Check a technique against the contract of its axis: the checks that the shipped techniques pass.

TECHNIQUE is a file and class (`./my_codec.py:SignSgd`), a dotted path (`my_package.module:Class`), or a shipped or
installed name. Its code is run. The exit code is 0 if all checks pass, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.check.verdict import Result

HELP = "check a technique, from a file or shipped, against the contract of its axis"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("technique", metavar="TECHNIQUE", help="FILE.py:Class, package.module:Class, or a name")
    parser.add_argument("--axis", help="axis of a name that stands on several, such as codec")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", dest="options",
                        help="check with this option of the technique, e.g. --set ratio=0.05; may be repeated")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="leave out the trainings in both worlds")


def execute(arguments: argparse.Namespace) -> Any:
    from testbed.check import verdict
    from testbed.check.catalogue import checks_of
    from testbed.check.subject import AXES, find
    from testbed.errors import ScenarioError

    if arguments.axis and arguments.axis not in AXES:
        raise ScenarioError(f"--axis {arguments.axis}: not one of {', '.join(AXES)}")
    subject = find(arguments.technique, arguments.axis or "", dict(map(_option, arguments.options)))
    _options_fit(subject)
    results = []
    for result in verdict.run(subject, checks_of(subject.axis.name, with_training=not arguments.quick)):
        results.append(result)
        if not arguments.json:
            _show(result)
    failed = sum(not result.passed for result in results)
    if arguments.json:
        print(json.dumps({
            "kind": "check", "axis": subject.axis.name, "technique": subject.kind, "passed": not failed,
            "checks": [asdict(result) for result in results],
        }))  # fmt: skip
    else:
        print(f"{arguments.technique} ({subject.axis.name}): "
              + (f"{failed} of {len(results)} checks failed" if failed else f"all {len(results)} checks passed"))  # fmt: skip
    return 1 if failed else 0


def _option(text: str) -> tuple[str, Any]:
    from testbed.errors import ScenarioError

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ScenarioError(f"--set {text}: write OPTION=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _options_fit(subject: Any) -> None:
    from testbed.errors import ScenarioError

    try:
        _ = subject.options
    except TypeError as error:
        raise ScenarioError(f"--set: {error}; the options are the fields of its class Options") from error


def _show(result: Result) -> None:
    print(f"{'ok  ' if result.passed else 'FAIL'}  {result.check}", flush=True)
    for label in ("expected", "happened", "cure") if not result.passed else ():
        print(f"        {label}: {getattr(result, label)}")
