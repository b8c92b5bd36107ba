"""The columns of a page say what the tables of a run say, whole or in part."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.load import StoredRun, load_run
from analysis.view.history import NO_KEY, REACHED, SIGNS, Names, Part, history
from analysis.view.plot import plot_of
from tests.results.fake_run import PROBES_S, START_S, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return load_run(make_run(tmp_path_factory.mktemp("runs") / "run"))


def test_each_message_and_each_work_is_a_row(run: StoredRun) -> None:
    names = Names.of(run.plan)
    found = history(run.tables, names)
    moved = run.tables["transfers"].query("payload_bytes > 0")
    assert sum(found["messages"]["bytes"]) == moved["payload_bytes"].sum()
    assert found["messages"]["t0"] == sorted(found["messages"]["t0"])
    nodes = list(names.nodes)
    ends = {(nodes[a], nodes[b]) for a, b in zip(found["messages"]["source"], found["messages"]["target"], strict=True)}
    assert ends == set(zip(moved["source"], moved["target"], strict=True))
    computed = run.tables["computes"].query("duration_s > 0")
    lanes = found["work"]["lane"]
    assert lanes.count(0) + lanes.count(1) == len(computed)
    assert found["training"]["t"] == [START_S]
    assert (
        found["carried"]["bytes"][-1] == moved.query("tier == 'wan' and round >= 0 and key >= 0")["payload_bytes"].sum()
    )


def test_messages_that_are_about_no_tensor_are_there_and_requests_for_one_are_not(run: StoredRun) -> None:
    """Registrations are the first that crosses a link; requests would be as many as what answers them."""
    some = run.tables["transfers"].head(3).assign(payload_bytes=0)
    some = some.assign(message=["register", "pull", "push"], key=[-1, 0, 0], round=-1)
    names = Names.of(run.plan)
    found = history({**run.tables, "transfers": some}, names)["messages"]
    assert [list(names.texts)[kind] for kind in found["kind"]] == ["register"] and found["bytes"] == [0]


def test_a_part_has_what_lies_in_its_time_and_sites(run: StoredRun) -> None:
    names = Names.of(run.plan)
    part = history(run.tables, names, Part(sites=["tokyo"], from_s=2.0, to_s=3.0))
    messages = part["messages"]
    assert messages["t0"] and max(messages["t0"]) <= 3.0 and min(messages["t"]) >= 2.0
    nodes = list(names.nodes)
    inside = {nodes[node].split("/")[0] for node in part["work"]["node"]}
    assert inside == {"tokyo"}
    for source, target in zip(messages["source"], messages["target"], strict=True):
        sites = {nodes[source].split("/")[0], nodes[target].split("/")[0]}
        assert len(sites) == 2 or sites == {"tokyo"}


def test_where_there_is_no_room_messages_of_a_round_become_one_and_no_byte_is_lost(run: StoredRun) -> None:
    whole = history(run.tables, Names.of(run.plan))["messages"]
    few = history(run.tables, Names.of(run.plan), Part(rows=len(whole["t"]) - 1))["messages"]
    assert len(few["t"]) < len(whole["t"]) and set(few["key"]) == {NO_KEY}
    assert sum(few["bytes"]) == sum(whole["bytes"])
    least = history(run.tables, Names.of(run.plan), Part(rows=10))
    assert 0 < len(least["messages"]["t"]) <= 10 and 0 < len(least["work"]["t"]) <= 10
    some = history(run.tables, Names.of(run.plan), Part(rows=60))["messages"]
    assert max(some["round"]) - min(some["round"]) >= 5  # of eight: rounds are left out evenly


def test_stale_contributions_and_blocks_that_are_missed_are_marks(run: StoredRun) -> None:
    updates = pd.DataFrame(
        {"node": "virginia/global0", "t_s": [1.0, 1.5, 2.0, 3.0], "round": [0, 0, 1, 2], "staleness": [1, 3, 0, 2]}
    )
    blocks = pd.DataFrame(
        {"node": "virginia/global0", "t_s": [2.0, 2.5, 4.0], "round": [1, 1, 2], "late": [2, 3, 0], "lost": [0, 0, 4]}
    )
    found = history({**run.tables, "updates": updates, "blocks": blocks}, Names.of(run.plan))["marks"]
    told = list(zip(found["t"], found["round"], [SIGNS[sign] for sign in found["sign"]], found["count"], strict=True))
    assert told == [(1.5, 0, "stale", 3), (2.5, 1, "late", 5), (3, 2, "stale", 2), (4, 2, "lost", 4)]


def test_samples_of_a_link_keep_the_ends_of_what_does_not_change(run: StoredRun) -> None:
    names = Names.of(run.plan)
    samples = history(run.tables, names)["samples"]
    for link, number in names.links.items():
        rows = run.tables["links"][run.tables["links"]["link"] == link]
        own = [row for row, each in enumerate(samples["link"]) if each == number]
        assert samples["t"][own[0]] == rows["t_s"].iloc[0] and samples["t"][own[-1]] == rows["t_s"].iloc[-1]
        assert samples["bytes"][own[-1]] == rows["bytes"].iloc[-1]


def test_what_links_carry_before_training_is_there_and_what_has_been_reached(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", probes=True))
    found = history(run.tables, Names.of(run.plan))
    last = len(run.plan["network"]["links"]) - 1
    own = [row for row, link in enumerate(found["samples"]["link"]) if link == last]
    before = [row for row in own if found["samples"]["t"][row] < START_S]
    assert [found["samples"]["bytes"][row] for row in before] == [0, 98, 200_098, 400_098]
    assert found["samples"]["bytes"][own[len(before)]] == 0  # training counts from its own begin
    reached = zip(found["reached"]["t"], found["reached"]["what"], strict=True)
    assert [(t, REACHED[what]) for t, what in reached] == [(PROBES_S, "network"), (0.1, "nodes"), (0.5, "measured")]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 60, 130, 900])
def test_every_network_has_places_within_the_picture_and_apart(run: StoredRun, count: int) -> None:
    names = [f"site{number}" for number in range(count)]
    ends = [(names[number // 2], names[number]) for number in range(1, count)]
    links = [{**run.plan["network"]["links"][0], "name": f"{a}>{b}", "source": a, "target": b} for a, b in ends]
    sites = [{**run.plan["network"]["sites"][0], "name": name, "central": name == "site0"} for name in names]
    network = {"sites": sites, "routers": [], "links": links, "routes": {}}
    plot = plot_of({**run.plan, "network": network, "nodes": []})
    places = list(zip(plot["x"], plot["y"], strict=True))
    assert all(-0.01 <= each <= 1.01 for place in places for each in place)
    assert len(set(places)) == count


def test_coordinates_make_a_map(run: StoredRun, tmp_path: Path) -> None:
    scenario = tmp_path / "resolved.yaml"
    places = {"virginia": (38.9, -77.4), "tokyo": (35.7, 139.7), "frankfurt": (50.1, 8.7)}
    told = "".join(f"    {name}: [{latitude}, {longitude}]\n" for name, (latitude, longitude) in places.items())
    scenario.write_text(f"topology:\n  coordinates:\n{told}")
    plot = plot_of(run.plan, scenario)
    at = dict(zip(plot["vertices"], zip(plot["x"], plot["y"], strict=True), strict=True))
    assert at["virginia"][0] < at["frankfurt"][0] < at["tokyo"][0]  # west is left
    assert at["frankfurt"][1] < at["virginia"][1] < at["tokyo"][1]  # and north is above
    assert plot["land"]
