"""The program that simulates flows: the records and functions of this folder."""

from __future__ import annotations

from pathlib import Path

from testbed.simulation.flows import classes, dispatch, heap, pools, records, sending, solver, waiting, window
from testbed.simulation.machine.machine import Program

PROGRAM = Program(
    name="flows",
    network=records.Network,
    kinds={
        "transfer": records.Transfer,
        "flow_class": records.FlowClass,
        "hop": records.Hop,
        "link": records.Link,
        "end": records.End,
        "level": records.Level,
        "visit": records.Visit,
        "reached": records.Reached,
        "change": records.Change,
        "notice": records.Notice,
        "arrival": records.Arrival,
        "path": records.Path,
        "model": records.Model,
        "pipe": records.Pipe,
        "connection": records.Connection,
    },
    pools=pools,
    modules=(pools, heap, solver, classes, waiting, window, sending, dispatch),
    enter=dispatch.enter,
    folder=Path(__file__).parent,
)
