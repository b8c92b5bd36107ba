"""The program that simulates packets: the records and functions of this folder."""

from __future__ import annotations

from pathlib import Path

from testbed.simulation.machine.machine import Program
from testbed.simulation.packets import (
    bbr,
    congestion,
    delivery_rate,
    dispatch,
    generator,
    host_queue,
    lan_sender,
    links,
    pools,
    receive_window,
    receiver,
    records,
    scoreboard,
    sender,
    socket,
    timers,
)

PROGRAM = Program(
    name="packets",
    network=records.Network,
    kinds={
        "packet": records.Packet,
        "segment": records.Segment,
        "frame": records.Frame,
        "datagrams": records.Datagrams,
        "queue": records.Queue,
        "port": records.Port,
        "hop": records.Hop,
        "path": records.Path,
        "link": records.Link,
        "connection": records.Connection,
    },
    pools=pools,
    modules=(
        pools,
        generator,
        links,
        host_queue,
        timers,
        congestion,
        delivery_rate,
        scoreboard,
        bbr,
        receive_window,
        receiver,
        sender,
        lan_sender,
        socket,
        dispatch,
    ),
    enter=dispatch.enter,
    folder=Path(__file__).parent,
)
