"""Report what this machine can do, and how to close each gap; measure, within seconds, how large runs it carries."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome
from testbed.devices.inventory import described
from testbed.display import look
from testbed.errors import CapabilityError

if TYPE_CHECKING:
    from emulation.probe import Capabilities

_STEP_TIMES_MS = (20, 50, 100, 200)
HELP = "report what this machine can do, and how to get the rest"


def execute(arguments: argparse.Namespace) -> Outcome:
    from emulation.exact import kernel
    from emulation.probe import probe

    found = probe()
    gpus = described()
    exact = _which(lambda: f"Linux {kernel.require().version}")
    emulate = not any(gap.needed for gap in found.gaps())
    carried = _carried()
    if arguments.json:
        gaps = [{"name": gap.name, "why": gap.why, "cure": gap.cure, "needed": gap.needed} for gap in found.gaps()]
        return {
            "kind": "doctor",
            "emulate": emulate,
            "simulate": True,
            "local": True,
            "gaps": gaps,
            **gpus,
            "exact": exact["there"],
            "machine": carried,
            "capabilities": found.to_dict(),
        }
    console = look.console()
    console.print(*_tables(found), sep="\n")
    how = f"yes, delays by {found.delay_method()}" if emulate else "no: see what is needed above"
    console.print(f"emulate: {how}\nsimulate: yes\nlocal: yes\nexact: {exact['told']}", soft_wrap=True)
    console.print(_told(carried), soft_wrap=True)
    console.print(f"device.kind: cuda: {_gpus(gpus)}", soft_wrap=True)
    return 0


def _carried() -> dict[str, Any]:
    """Measure a step of the quickstart's model and a message. Return how many such workers this machine can run."""
    from testbed.execution import capacity
    from testbed.plan.build import build_plan
    from testbed.scenario.load import load

    hop_s = capacity.measured_hop_s()  # before torch starts threads, as it forks
    plan = build_plan(load("quickstart"))
    step_s = capacity.measured_step_s(plan)
    cores = capacity.usable_cores()
    workers = {f"{ms} ms": capacity.workers_carried(step_s, ms / 1e3, cores) for ms in _STEP_TIMES_MS}
    return {
        "cores": cores,
        "model": plan.training.model.kind,
        "batch": plan.training.batch_size,
        "step_s": round(step_s, 6),
        "hop_s": round(hop_s, 6),
        "workers": workers,
    }


def _told(carried: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{count} of {step_time}" for step_time, count in carried["workers"].items())
    return (
        f"size: a step of the quickstart's model ({carried['model']}, batch {carried['batch']}) takes about "
        f"{carried['step_s'] * 1e3:.1f} ms of a core, a message to another process {carried['hop_s'] * 1e6:.0f} us; so "
        f"{carried['cores']} cores carry these numbers of emulated workers, by their step time: {counts}"
    )


def _gpus(found: Mapping[str, Any]) -> str:
    """Return the GPUs of this machine, and whether torch can use them, or the cure."""
    named = ", ".join(
        f"GPU {gpu['index']}: {gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, driver {gpu['driver']}"
        for gpu in found["gpus"]
    )
    if not named:
        return "no: nvidia-smi finds no GPU; install NVIDIA's driver, or write device.kind: cpu"
    if found["cuda"] is None:
        return f"no: {named}, but torch is built without CUDA; install another build (pip install torch)"
    return f"yes, {named}; torch is built for CUDA {found['cuda']}"


def _which(name: Callable[[], str]) -> dict[str, Any]:
    """Return whether something is available, and a text (``told``) with its name, or with the reason and the cure.

    ``name`` returns its name, or raises ``CapabilityError``.
    """
    try:
        return {"there": True, "told": f"yes, {name()}"}
    except CapabilityError as error:
        return {"there": False, "told": f"no: {error}"}


def _tables(found: Capabilities) -> list[Any]:
    facts = [(name.replace("_", " "), _text(value)) for name, value in found.to_dict().items()]
    gaps = [(gap.name + (" (needed)" if gap.needed else " (optional)"), gap.why, gap.cure) for gap in found.gaps()]
    shown = [look.table("this machine", "", "", rows=facts)]
    return [*shown, look.table("missing", "what", "why it matters", "cure", rows=gaps)] if gaps else shown


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, tuple | list) else str(value) or "none"
