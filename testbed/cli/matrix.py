"""Print which techniques go together: every pair of values of two axes, and the reason where a pair is refused."""

from __future__ import annotations

import argparse

from testbed.cli.options import Outcome

HELP = "print which techniques go together, and why others do not"


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.scenario.matrix import cells, markdown

    if arguments.json:
        rows = [
            {
                "axes": cell.axes,
                "kinds": cell.kinds,
                "works": cell.refused is None,
                "needs": cell.needs,
                "refused": cell.refused,
            }
            for cell in cells()
        ]
        return {"kind": "matrix", "cells": rows}
    print(markdown(cells()), end="")
    return 0
