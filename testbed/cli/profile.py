"""Measure a model on this device, so that `simulate` can predict a data centre of such devices elsewhere.

Writes two files: what each layer takes forward and backward (`device.profile`), and what codecs, copies and optimizers
cost (`simulation.costs`). The scenario says which model, data, batch, precision and device.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome, add_scenario, make_folder, read_plan, whole
from testbed.display import look
from testbed.environment import GPU_NUMBERS
from testbed.errors import ScenarioError
from testbed.numbers import seconds

if TYPE_CHECKING:
    from testbed.plan.model import NodePlan, Plan

HELP = "measure a model's layers, codecs and copies on this device, for `simulate`"
_LARGE = 1 << 22


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where profile.csv and costs.csv go")
    parser.add_argument("--repeats", type=whole, default=20, metavar="N", help="training steps to measure; default 20")
    parser.add_argument("--no-costs", action="store_true", help="measure only layers; codecs take a minute")


def execute(arguments: argparse.Namespace) -> Outcome:
    scenario, plan = read_plan(arguments)
    if plan.program is not None or plan.training.compute != "real" or not plan.with_role("worker"):
        raise ScenarioError("profile: needs a model that is computed; write training.compute: real")
    if arguments.repeats < 1:
        raise ScenarioError("profile: --repeats must be at least 1")
    os.environ.update(GPU_NUMBERS)  # before torch is imported
    from testbed.launch import check_before_training

    check_before_training(scenario, plan)
    make_folder(arguments.out)
    from analysis.costs import measure
    from analysis.profile import profile
    from testbed.costs import write_costs
    from testbed.execution.devices import placed
    from testbed.results import atomic

    plan = placed(plan)
    worker = plan.with_role("worker")[0]
    about = _about(plan)
    found = profile(plan, arguments.repeats)
    files = {"device.profile": arguments.out / "profile.csv"}
    atomic.write_text(files["device.profile"], found.text(about))
    if not arguments.no_costs:
        files["simulation.costs"] = arguments.out / "costs.csv"
        atomic.write_text(files["simulation.costs"], write_costs(_costs(plan, worker, measure), about))
    if arguments.json:
        return {"kind": "profile", "step_s": found.step_s, "files": {key: str(path) for key, path in files.items()}}
    rows = [(name, *map(seconds, times_s)) for name, *times_s in found.layers]
    rows.append(("step", seconds(found.step_s), ""))
    console = look.console()
    console.print(look.table(about, "segment", ">forward", ">backward", rows=rows))
    for key, path in files.items():
        console.print(f"--set '{key}={{file: {path}}}'", soft_wrap=True)
    return 0


def _costs(plan: Plan, worker: NodePlan, measure: Any) -> Any:
    """Return the rows of the processor, which servers may use, and those of the GPU if workers have one."""
    from testbed.placing import place_of

    device = place_of(plan, worker)
    rows = measure(_LARGE)
    return rows if device.type == "cpu" else rows | measure(_LARGE, device=device)


def _about(plan: Plan) -> str:
    import torch

    from testbed.devices.inventory import gpus

    worker = plan.with_role("worker")[0]
    named = [gpu.name for gpu in gpus() if gpu.index == worker.device.index] if worker.device.kind != "cpu" else []
    training = plan.training
    device = named[0] if named else platform.machine()
    return (
        f"{training.model.kind}, batch {training.batch_size}, {training.precision}, on {device}, "
        f"PyTorch {torch.__version__}"
    )
