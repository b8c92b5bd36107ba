"""Check a technique against the contract of its axis: the checks that the shipped techniques pass.

TECHNIQUE is a file and class (`./my_codec.py:SignSgd`), a dotted path (`my_package.module:Class`), or a shipped or
installed name. Its code is run. The exit code is 0 if all checks pass, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome
from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from testbed.testing.requirement import Requirement, Result

HELP = "check a technique, from a file or shipped, against the contract of its axis"
_SET = "check with this option of the technique, e.g. --set ratio=0.05; may be repeated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("technique", metavar="TECHNIQUE", help="FILE.py:Class, package.module:Class, or a name")
    parser.add_argument("--axis", default="", help="axis, such as codec, if several have this name; figure: a study")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", dest="options", help=_SET)
    parser.add_argument("--file", type=Path, help="input of a topology reader or trace format, instead of its sample")
    parser.add_argument("--quick", action="store_true", help="leave out the trainings in both worlds")


def execute(arguments: argparse.Namespace) -> Outcome:
    import torch

    from testbed.testing.requirement import results

    torch.set_num_threads(1)  # as in every run: sums do not depend on a number of threads
    subject, axis, contract = _figure(arguments) if arguments.axis == "figure" else _technique(arguments)
    done: list[Result] = []
    for result in results(subject, contract):
        if not arguments.json:
            _show(result, done)
        done.append(result)
    failed = sum(not result.passed for result in done)
    count = len(done)
    if arguments.json:
        kind = getattr(subject, "kind", arguments.technique)
        about = {"kind": "check", "axis": axis, "technique": kind, "passed": not failed}
        return int(failed > 0), {**about, "checks": [asdict(result) for result in done]}
    outcome = f"{failed} of {count} checks failed" if failed else f"all {count} checks passed"
    print(f"{arguments.technique} ({axis}): {outcome}")
    return int(failed > 0)


def _figure(arguments: argparse.Namespace) -> tuple[Any, str, Sequence[Requirement]]:
    """Return the study. Raise ``ScenarioError`` when there is none."""
    from analysis.studies.study import find
    from testbed.testing import figure  # loads pandas and matplotlib
    from testbed.testing.requirement import requirements_of

    for option, value in (("--set", arguments.options), ("--file", arguments.file)):
        if value:
            raise ScenarioError(f"{option}: has no effect on the axis figure; leave it out")
    return find(arguments.technique)[1], "figure", requirements_of(figure)


def _technique(arguments: argparse.Namespace) -> tuple[Any, str, Sequence[Requirement]]:
    """Return the technique with its options. Raise ``ScenarioError`` when there is no such technique or option."""
    from testbed.testing.contracts import contract_of
    from testbed.testing.subject import AXES, find, with_file

    if arguments.axis and arguments.axis not in AXES:
        raise ScenarioError(f"--axis {arguments.axis}: not one of {', '.join(AXES)}, figure")
    subject = find(arguments.technique, arguments.axis, dict(map(_option, arguments.options)))
    try:
        _ = subject.options
    except TypeError as error:
        raise ScenarioError(f"--set: {error}; the options are the fields of its class Options") from error
    subject = with_file(subject, arguments.file)
    if subject.file is not None and not subject.file.rows:
        raise ScenarioError(f"{arguments.technique}: has no 'sample' to read; set it in the class, or give --file FILE")
    return subject, subject.axis_name, contract_of(subject.axis_name, with_training=not arguments.quick)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ScenarioError(f"--set {text}: write OPTION=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _show(result: Result, before: Sequence[Result]) -> None:
    """Print a result. If an earlier result in ``before`` has described the same fault, only refer to it."""
    print(f"{'ok  ' if result.passed else 'FAIL'}  {result.check}", flush=True)
    if result.passed:
        return
    if same := [each.check for each in before if (each.happened, each.cure) == (result.happened, result.cure)]:
        print(f"        as '{same[0]}'")
        return
    for label in ("expected", "happened", "cure"):
        print(f"        {label}: {getattr(result, label)}")
