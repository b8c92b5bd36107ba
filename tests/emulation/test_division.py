"""An emulated network on several machines: every part has what is on its machine, and tunnels join them. Pure."""

from __future__ import annotations

import re

import pytest

from analysis.benchmarks.sample_plans import plan
from emulation.commands import address_lines, delay_rules
from emulation.division import MachinePart, divide, mtu_within, tunnel_lines, vni
from emulation.layout import Layout, lay_out
from emulation.shaping.base import Shaper
from emulation.shaping.install import delay_lines, link_specs, netem_lines, rate_lines
from emulation.shaping.table import DelayField, DelayTable
from testbed.plan.model import Plan
from tests.for_each import for_each

MACHINES = {"dc0": "one", "dc1": "two", "dc2": "two"}
TRIANGLE = {("dc0", "dc1"): {"delay_s": 0.02}, ("dc0", "dc2"): {}, ("dc1", "dc2"): {}}


def part(machine: str, machines: dict[str, str] = MACHINES) -> MachinePart:
    return MachinePart(
        machine=machine, machines=machines, addresses={"one": "10.9.0.1", "two": "10.9.0.2"},
        delays_s={"one": 0.001, "two": 0.003}, first_vni=1000,
    )  # fmt: skip


def whole(wires: bool, told: Plan | None = None) -> Layout:
    return lay_out(told or plan(TRIANGLE, sites=3, workers=2), wires=wires)


@for_each("wires", [False, True])
def test_parts_together_have_every_node_cable_and_shaped_port_once(wires: bool) -> None:
    layout = whole(wires)
    parts = [divide(layout, part(machine)) for machine in ("one", "two")]
    for what in ("hosts", "gateways", "routers", "routes", "lan", "lan_delays"):
        assert sorted(map(str, getattr(layout, what))) == sorted(
            str(each) for one in parts for each in getattr(one, what)
        ), what
    for vertex in ("dc0", "dc1", "dc2", "wires"):
        rates = [line for one in parts for line in rate_lines(one, vertex) if vertex in one.vertices]
        assert sorted(rates) == sorted(rate_lines(layout, vertex)), vertex


@for_each("wires", [False, True])
def test_a_cable_between_machines_has_a_tunnel_at_each_end(wires: bool) -> None:
    layout = whole(wires)
    one, two = (divide(layout, part(machine)) for machine in ("one", "two"))
    assert [tunnel.number for tunnel in one.tunnels] == [tunnel.number for tunnel in two.tunnels] == [0, 1]
    crossing = {end for cable in layout.cables for end in (cable.a, cable.b)}
    for divided in (one, two):
        crossing -= {end for cable in divided.cables for end in (cable.a, cable.b)}
    assert crossing <= {tunnel.port for divided in (one, two) for tunnel in divided.tunnels}
    lines = tunnel_lines(one, part("one"), dict.fromkeys(one.vertices, 77))
    assert [re.findall(r"id (\d+) local (\S+) remote (\S+)", line)[0] for line in lines] == [
        ("1001", "10.9.0.1", "10.9.0.2"), ("1002", "10.9.0.1", "10.9.0.2"),
    ]  # fmt: skip


@for_each("wires", [False, True])
def test_each_port_of_a_bridge_is_a_cable_or_a_tunnel_there(wires: bool) -> None:
    for machine in ("one", "two"):
        divided = divide(whole(wires), part(machine))
        for vertex, bridge, ports in divided.bridges:
            assert {port.interface for port in divided.ports_of(vertex)} >= set(ports), bridge


def test_a_tunnel_has_the_address_that_the_cable_would_have() -> None:
    layout = whole(False)
    for machine, vertex in (("one", "dc0"), ("two", "dc1"), ("two", "dc2")):
        assert sorted(address_lines(divide(layout, part(machine)), vertex, "")) == sorted(
            address_lines(layout, vertex, "")
        )


def specs(machine: str, method: str = "nfqueue") -> dict[str, object]:
    told = plan(TRIANGLE, sites=3, workers=2)
    here = part(machine)
    layout = divide(whole(method == "netem", told), here)
    made = link_specs(layout, told, lambda vertex: f"/ns/{vertex}", method, here)  # type: ignore[arg-type]
    return {spec.name: spec for spec in made}


@for_each("method", ["nfqueue", "netem"])
def test_a_link_has_its_rate_where_it_begins_and_its_delay_where_it_ends(method: str) -> None:
    one, two = specs("one", method), specs("two", method)
    assert {name for name, spec in one.items() if spec.has_rate} == {"dc0>dc1", "dc0>dc2"}
    assert {name for name, spec in one.items() if spec.has_delay} == {"dc1>dc0", "dc2>dc0"}
    assert {name for name, spec in two.items() if not spec.has_rate} == {"dc0>dc1", "dc0>dc2"}
    assert (one["dc1>dc0"].underlay_s, two["dc0>dc1"].underlay_s, two["dc1>dc2"].underlay_s) == (0.003, 0.001, 0.0)
    assert len(delay_lines(list(one.values()))) == 2 and len(delay_lines(list(two.values()))) == 4


def test_netem_is_at_the_port_towards_the_receiver_of_this_machine() -> None:
    layout = whole(True)
    delays = {}
    for machine in ("one", "two"):
        divided = divide(layout, part(machine))
        made = link_specs(divided, plan(TRIANGLE, sites=3, workers=2), lambda v: f"/ns/{v}", "netem", part(machine))
        delays[machine] = [line.split()[3] for line in netem_lines(made, divided, "wires")]
        tunnels = {tunnel.port.interface for tunnel in divided.tunnels}
        assert not tunnels & set(delays[machine]), "packets would be delayed before they cross to the other machine"
    assert (len(delays["one"]), len(delays["two"])) == (2, 4)


def test_packets_are_queued_for_the_delay_line_of_the_machine_where_they_arrive() -> None:
    rules = delay_rules(divide(whole(False), part("one")), "dc0")
    assert rules.count("NFQUEUE") == 2


def test_the_delay_of_the_underlay_is_subtracted() -> None:
    spec = specs("two")["dc0>dc1"]
    table = DelayTable.create(6)
    shaper = Shaper([spec], table)
    shaper.apply_plan()
    assert table.row(spec.row)[DelayField.DELAY_NS] == 19_000_000
    assert shaper.path_of("dc0>dc1").delay_s == pytest.approx(0.020)
    shaper.set_path("dc0>dc1", delay_s=0.0005)
    assert table.row(spec.row)[DelayField.DELAY_NS] == 0
    shaper.set_rate("dc0>dc1", 5e6)  # of the other machine: nothing to do here


def test_a_link_that_only_begins_here_is_not_delayed_here() -> None:
    spec = specs("one")["dc1>dc0"]
    begins = specs("one")["dc0>dc1"]
    table = DelayTable.create(6)
    Shaper([spec], table).set_lost("dc1>dc0", 5)
    assert table.row(spec.row)[DelayField.LOST] == 5
    assert (begins.delay_namespace, spec.rate_namespace) == ("", "")


def test_routers_divide_as_data_centers_do() -> None:
    told = plan({("dc0", "r"): {}, ("r", "dc1"): {}}, routers=("r",))
    divided = divide(whole(False, told), part("two", {"dc0": "one", "dc1": "two", "r": "two"}))
    assert (divided.routers, len(divided.tunnels), divided.tunnels[0].port.vertex) == (("r",), 1, "r")


def test_numbers_of_tunnels_fit_into_24_bits_and_are_not_0() -> None:
    assert [vni(2**24 - 2, number) for number in range(3)] == [2**24 - 1, 1, 2]


def test_the_mtu_leaves_room_for_a_tunnels_headers() -> None:
    assert (mtu_within(1500), mtu_within(1550), mtu_within(9000)) == (1450, 1500, 1500)
