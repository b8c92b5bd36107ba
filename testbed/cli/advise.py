"""Find out which technique suits a network: simulate the candidates, rank them, and say how sure the ranking is.

Every preset (those that `testbed sweep --techniques` runs) is simulated on the scenario's own network, devices, model
and data, within a budget. The answer names the techniques for which the budget did not suffice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.options import (
    Outcome,
    add_allow_code,
    check_jobs,
    decimal,
    make_folder,
    scenario_file,
    whole,
)
from testbed.errors import Interrupted, ScenarioError
from testbed.facilities import BACK_ENDS

if TYPE_CHECKING:
    from testbed.scenario import Scenario

HELP = "rank techniques for a scenario by time, bytes or money to a goal"
DEFAULT_BUDGET_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=scenario_file, help="scenario file (YAML), or the name of a shipped scenario")
    parser.add_argument(
        "--goal", metavar="accuracy=A", help="goal to reach; default: training.target_accuracy of the scenario"
    )
    parser.add_argument(
        "--least", default="time", metavar="MEASURE", help="what to minimise: time, bytes or money; default: time"
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="WHAT",
        help="no-udp: no unreliable datagrams; fp32: tensors travel uncompressed; points=1: at most one point of "
        "accuracy lost at the end; may be repeated",
    )
    parser.add_argument(
        "--prices",
        type=Path,
        metavar="FILE.csv",
        help="what transfers and machines cost: data_center,to,region,usd_per_gb,usd_per_hour",
    )
    parser.add_argument("--techniques", metavar="NAME,…", help="only these presets; default: all")
    parser.add_argument(
        "--tune",
        metavar="NAME=LOW..HIGH",
        help="search this option of the optimizer for each technique, e.g. learning_rate=3e-4..1e-1; needs Optuna",
    )
    parser.add_argument(
        "--trials", type=whole, default=4, metavar="N", help="runs of each search of --tune; default: %(default)s"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", dest="overrides", help="change one value"
    )
    parser.add_argument(
        "--budget",
        type=decimal,
        default=DEFAULT_BUDGET_S,
        metavar="S",
        help="seconds that the answer may take; default: %(default)g",
    )
    parser.add_argument(
        "--simulations",
        type=whole,
        metavar="N",
        help="make at most N simulations instead, which gives the same answer on every machine",
    )
    parser.add_argument("--jobs", type=whole, metavar="N", help="simulations at once; default: the number of cores")
    parser.add_argument("--confirm", type=whole, metavar="N", help="also run the best N in full, and compare")
    parser.add_argument("--on", choices=BACK_ENDS, help="where --confirm runs them; default: the scenario's back end")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go; default: advice/NAME")
    parser.add_argument("--again", action="store_true", help="replace the advice in --out")
    add_allow_code(parser)


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.advise.advising import INTERRUPTED, Words, advise, wish
    from analysis.advise.budget import Budget, Seconds, Simulations
    from analysis.advise.conclusion import conclusion, confirmation
    from analysis.advise.files import OwnFile, earlier, write
    from analysis.advise.output import as_records
    from analysis.advise.techniques import additions, techniques
    from testbed.api import Advice
    from testbed.scenario.load import load

    check_jobs(arguments.jobs)
    if arguments.confirm is not None and arguments.confirm < 1:
        raise ScenarioError(f"--confirm {arguments.confirm}: at least 1")
    budget: Budget = Seconds(arguments.budget)
    if arguments.simulations is not None:
        budget = Simulations(arguments.simulations)

    def read(settings: Sequence[str], on: str | None) -> Scenario:
        return load(arguments.scenario, [*arguments.overrides, *settings], on=on, allow_code=arguments.allow_code)

    scenario = read([], "simulate")
    words = Words(
        arguments.goal,
        arguments.least,
        arguments.require,
        arguments.jobs,
        arguments.prices,
        arguments.tune,
        arguments.trials,
    )
    asked = wish(scenario, words)
    chosen = techniques(arguments.techniques, scenario)
    out = arguments.out or Path("advice") / scenario.name
    make_folder(out)
    if earlier(out) and not arguments.again:
        raise ScenarioError(f"{out}: holds an advice; --again replaces it, --out DIR puts this one elsewhere")
    further = additions(scenario) if arguments.techniques is None else {}
    advice = advise(read, chosen, asked, budget, _silent if arguments.json else _tell, further)
    files = [str(path) for path in write(advice, out, OwnFile(arguments.scenario, arguments.overrides))]
    said = conclusion(advice)
    confirmed = []
    if arguments.confirm is not None and INTERRUPTED not in advice.notes:
        confirmed = Advice(advice).confirm(arguments.confirm, on=arguments.on, out=out, again=arguments.again)
    if confirmed:
        said += confirmation(advice, confirmed)
    code = Interrupted.exit_code if INTERRUPTED in advice.notes else 0
    if arguments.json:
        return code, {"kind": "advice", "conclusion": said, "rows": as_records(advice), "files": files}
    from testbed.display import look
    from testbed.display.summary import advice_reasons, advice_table

    console = look.console()
    console.print(advice_table(advice))
    console.print(*advice_reasons(advice), "", *said, sep="\n")
    console.print("written: " + ", ".join(files))
    return code


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    """Show nothing."""
