"""Say what this machine can do, and for each gap how to close it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulation.probe import Capabilities

HELP = "say what this machine can do, and how to get the rest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # none beside the common ones


def execute(arguments: argparse.Namespace) -> int:
    from emulation.probe import probe

    found, mpi = probe(), _mpi()
    if arguments.json:
        print(json.dumps(_as_json(found) | {"mpi": mpi}))
        return 0
    from testbed.cli import look

    console = look.console()
    console.print(*_tables(found), _verdict(found), sep="\n")
    console.print(f"paradigm: mpi: {mpi['told']}", markup=False, soft_wrap=True)
    return 0


def can_emulate(found: Capabilities) -> bool:
    """Whether nothing that emulation needs is missing."""
    return not any(gap.needed for gap in found.gaps())


def _mpi() -> dict[str, Any]:
    """Whether workers can be ranks of an MPI here; ``told`` is which, or why not and the cure."""
    from testbed.errors import CapabilityError
    from testbed.run.distributed.mpi.library import load_mpi, name_of

    try:
        return {"there": True, "told": f"yes, {name_of(load_mpi())}"}
    except CapabilityError as error:
        return {"there": False, "told": f"no: {error}"}


def _as_json(found: Capabilities) -> dict[str, Any]:
    gaps = [{"name": gap.name, "why": gap.why, "cure": gap.cure, "needed": gap.needed} for gap in found.gaps()]
    return {"kind": "doctor", "emulate": can_emulate(found), "simulate": True, "local": True, "gaps": gaps,
            "capabilities": found.to_dict()}  # fmt: skip


def _tables(found: Capabilities) -> list[Any]:
    from testbed.cli import look

    facts = look.table("this machine", "", "")
    for name, value in found.to_dict().items():
        facts.add_row(name.replace("_", " "), _said(value))
    gaps = look.table("missing", "what", "why it matters", "cure")
    for gap in found.gaps():
        gaps.add_row(gap.name + (" (needed)" if gap.needed else " (optional)"), gap.why, gap.cure)
    return [facts, gaps] if found.gaps() else [facts]


def _verdict(found: Capabilities) -> str:
    emulate = f"yes, delays by {found.delay_method()}" if can_emulate(found) else "no: see what is needed above"
    return f"emulate: {emulate}\nsimulate: yes\nlocal: yes"


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, tuple | list) else str(value) or "none"
