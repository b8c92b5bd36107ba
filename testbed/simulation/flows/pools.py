"""How the functions of this package access records by index. In compiled code, they access arrays in memory instead."""

from __future__ import annotations

from testbed.simulation.flows.records import (
    Arrival,
    Change,
    Connection,
    End,
    FlowClass,
    Hop,
    Level,
    Link,
    Model,
    Network,
    Notice,
    Path,
    Pipe,
    Reached,
    Transfer,
    Visit,
)


def transfer_at(net: Network, index: int) -> Transfer:
    return net.transfer_list[index]


def flow_class_at(net: Network, index: int) -> FlowClass:
    return net.flow_class_list[index]


def hop_at(net: Network, index: int) -> Hop:
    return net.hop_list[index]


def link_at(net: Network, index: int) -> Link:
    return net.link_list[index]


def end_at(net: Network, index: int) -> End:
    return net.end_list[index]


def level_at(net: Network, index: int) -> Level:
    return net.level_list[index]


def visit_at(net: Network, index: int) -> Visit:
    return net.visit_list[index]


def reached_at(net: Network, index: int) -> Reached:
    return net.reached_list[index]


def change_at(net: Network, index: int) -> Change:
    return net.change_list[index]


def notice_at(net: Network, index: int) -> Notice:
    return net.notice_list[index]


def arrival_at(net: Network, index: int) -> Arrival:
    return net.arrival_list[index]


def path_at(net: Network, index: int) -> Path:
    return net.path_list[index]


def model_at(net: Network, index: int) -> Model:
    return net.model_list[index]


def pipe_at(net: Network, index: int) -> Pipe:
    return net.pipe_list[index]


def connection_at(net: Network, index: int) -> Connection:
    return net.connection_list[index]
