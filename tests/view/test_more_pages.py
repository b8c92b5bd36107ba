"""Pages in a browser at length: side by side, a sweep, narrow and dark, live, and a thousand data centres."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.view.opening import saved_page_of, server_of
from testbed.results.rundir import RunDirectory
from tests.results import fake_run
from tests.results.fake_run import PROBES_S, make_plan, make_run, write_events, write_probes
from tests.view.browser import chromium, page_of, until

pytestmark = pytest.mark.slow  # 3 s each
WAN_S = {"fsa": 0.100, "hfa": 0.040}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps") / "mine"
    points = []
    with pytest.MonkeyPatch.context() as patch:
        for kind, wan_s in WAN_S.items():
            for seed in (1, 2):
                patch.setattr(fake_run, "WAN_S", wan_s * (1 + seed / 10))
                make_run(path / "runs" / f"{kind}{seed}", sync=kind, seed=seed)
                points.append({"id": f"{kind}{seed}", "settings": {"sync": kind}, "seed": seed})
    points.append({"id": "later", "settings": {"sync": "hfa"}, "seed": 3})
    index = {"schema_version": 1, "scenario": "quickstart.yaml", "points": points}
    (path / "sweep.json").write_text(json.dumps(index))
    return path


def test_runs_lie_side_by_side_on_one_clock(browser: Any, sweep: Path) -> None:
    server = server_of([sweep / "runs" / "fsa1", sweep / "runs" / "hfa1"])
    try:
        with page_of(browser, server.url) as page:
            assert page.locator(".network canvas").count() == 2
            page.evaluate("page.seek(1.0)")
            starts = page.evaluate("page.runs.map((run) => [run.start, page.timeOf(run)])")
            assert [now - start for start, now in starts] == [1.0, 1.0]
            until(page, "document.getElementById('summary').innerText.startsWith('1.00 s')")
            told = page.locator("#summary").inner_text()
            assert "fsa1: round" in told and "hfa1: round" in told
            rounds = page.evaluate("page.runs.map((run) => run.roundAt(page.timeOf(run)))")
            assert rounds[1] > rounds[0]  # whose messages take less time
            page.locator("#over").select_option("bytes")
            labels = page.locator("#accuracy .u-legend .u-label").all_inner_texts()
            assert labels[-2:] == ["fsa1", "hfa1"]
    finally:
        server.close()


def test_a_sweep_is_filtered_sorted_and_opened(browser: Any, sweep: Path) -> None:
    server = server_of([sweep])
    try:
        with page_of(browser, server.url) as page:
            rows = page.locator("#runs tbody tr")
            assert rows.count() == 5 and "4 have results" in page.locator("#summary").inner_text()
            page.get_by_role("button", name="hfa", exact=True).click()
            assert rows.count() == 3
            page.get_by_role("button", name="clear").click()
            page.get_by_role("button", name="per round (s)").click()
            assert rows.first.locator("td").nth(1).inner_text() in ("later", "hfa-seed3", "hfa-seed1")
            assert page.evaluate("sweep.values.length") >= 5  # words on the axes of the parallel coordinates
            front = page.evaluate(
                "sweep.best(sweep.rows.filter((row) => row.wan_mb), 'round_time_s', 'accuracy').length"
            )
            assert front >= 1
            page.get_by_label("put fsa-seed1 side by side").check()
            page.get_by_label("put hfa-seed1 side by side").check()
            page.get_by_role("button", name="side by side").click()
            page.wait_for_selector("body.ready .network")
            assert page.locator(".network canvas").count() == 2
    finally:
        server.close()


def test_a_saved_sweep_has_its_table(browser: Any, sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep.html").write_text(saved_page_of([sweep]))
    with page_of(browser, (tmp_path / "sweep.html").as_uri()) as page:
        assert page.locator("#runs tbody tr").count() == 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_off(browser: Any, sweep: Path, width: int, scheme: str) -> None:
    server = server_of([sweep / "runs" / "fsa1"])
    try:
        with page_of(browser, server.url, width=width, scheme=scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(18, 21, 27)") == (scheme == "dark")
            for control in page.locator("button:visible, select:visible, input:visible").all():
                box = control.bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= width
                named = control.evaluate(
                    "(each) => each.getAttribute('aria-label') || each.labels?.length || each.textContent.trim()"
                )
                assert named, control.evaluate("(each) => each.outerHTML")
    finally:
        server.close()


def test_lanes_are_zoomed_to_a_millisecond(browser: Any, sweep: Path) -> None:
    server = server_of([sweep / "runs" / "fsa1"])
    try:
        with page_of(browser, server.url) as page:
            page.evaluate("page.seek(2.0)")
            page.get_by_label("Lanes of the nodes").focus()
            for _ in range(14):
                page.keyboard.press("+")
            low, high = page.evaluate("[page.lanes[0].from, page.lanes[0].to]")
            assert high - low < 1e-3 and low <= 2.0 <= high
            page.get_by_role("button", name="critical path").click()
            page.get_by_role("button", name="whole run").click()
            paths = page.evaluate("page.runs[0].tables.paths")
            nodes = page.evaluate("page.runs[0].plot.nodes.name")
            first = [row for row, number in enumerate(paths["round"]) if number == 0]
            way = [(nodes[paths["source"][row]], nodes[paths["target"][row]]) for row in first]
            assert way[0][0].startswith("tokyo/worker")  # the slowest
            assert ("tokyo/server0", "virginia/global0") in way
    finally:
        server.close()


def test_a_run_in_progress_is_followed(browser: Any, tmp_path: Path) -> None:
    finished = make_run(tmp_path / "finished")
    run = RunDirectory(tmp_path / "live")
    run.path.mkdir()
    (run.path / "plan.json").write_bytes((finished / "plan.json").read_bytes())
    run.set_status("running", "")
    server = server_of([run.path])
    try:
        with page_of(browser, server.url) as page:
            assert page.locator("#state").inner_text() == "live"
            assert page.locator("#summary").inner_text().startswith("The run begins")
            write_probes(make_plan(), run.events)
            until(page, f"page.clock.t >= {PROBES_S}")
            assert page.evaluate("page.runs[0].links.every((_, link) => page.runs[0].linkAt(link, page.first).use > 0)")
            until(
                page,
                "document.getElementById('summary').textContent.includes('its links are being tried and measured')",
            )
            write_events(make_plan(), run.events)
            until(page, "page.runs[0].tables.messages.t.length > 100")
            until(page, "page.clock.t > 0.5")  # the clock follows
            run.set_status("failed", "")
            until(page, "document.getElementById('state').textContent === 'failed'")
    finally:
        server.close()


def test_a_data_centre_of_a_large_run_shows_its_nodes_while_the_run_grows(browser: Any, tmp_path: Path) -> None:
    finished = make_run(tmp_path / "finished")
    plan = json.loads((finished / "plan.json").read_text())
    worker = next(node for node in plan["nodes"] if node["role"] == "worker")
    more = [{**worker, "name": f"virginia/more{number}", "data_center": "virginia"} for number in range(150)]
    plan["nodes"] += more  # so that the page holds the work of virginia alone
    run = RunDirectory(tmp_path / "live")
    run.path.mkdir()
    (run.path / "plan.json").write_text(json.dumps(plan))
    run.set_status("running", "")
    server = server_of([run.path])
    try:
        with page_of(browser, server.url) as page:
            page.get_by_label("Find a data centre").fill("tokyo")
            page.keyboard.press("Enter")
            until(page, "page.lanes[0].rows.length === 3")
            write_events(make_plan(), run.events)
            until(page, "page.lanes[0].detail?.run.tables.work.t.length > 20")
            names = "page.lanes[0].detail.run.tables.work.node.map((node) => page.runs[0].plot.nodes.name[node])"
            assert {name.split("/")[0] for name in page.evaluate(names)} == {"tokyo"}
            page.get_by_role("button", name="Close").click()
            assert page.evaluate("page.lanes[0].detail === null && page.lanes[0].rows.length > 150")
            run.set_status("failed", "")
            until(page, "document.getElementById('state').textContent === 'failed'")
    finally:
        server.close()


def test_of_a_program_the_links_are_told_and_no_empty_curves(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "program": {"command": ["true"]}}))
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "plan_sha256": ""}))
    server = server_of([run])
    try:
        with page_of(browser, server.url) as page:
            page.evaluate("page.seek(2.0)")
            until(page, "document.getElementById('summary').innerText.startsWith('2.00 s')")
            assert "directions of links carry something" in page.locator("#summary").inner_text()
            assert not page.locator("#learning").is_visible() and not page.locator(".lanes").is_visible()
    finally:
        server.close()


def test_an_axis_of_minutes_has_whole_ones(browser: Any, sweep: Path) -> None:
    server = server_of([sweep / "runs" / "fsa1"])
    try:
        with page_of(browser, server.url) as page:
            found = page.evaluate("import('view/numbers').then(({ steps }) => [steps(0, 1800, 4), steps(0, 18, 4)])")
            assert found == [[0, 600, 1200, 1800], [0, 5, 10, 15]]
    finally:
        server.close()


def test_a_thousand_data_centres_are_drawn_together_until_one_is_chosen(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    plan = json.loads((run / "plan.json").read_text())
    network = plan["network"]
    far = [f"far{number}" for number in range(1000)]
    network["sites"] += [{**network["sites"][1], "name": name, "index": 3 + place} for place, name in enumerate(far)]
    link = network["links"][0]
    for name in far:
        for source, target in ((name, "virginia"), ("virginia", name)):
            network["links"].append({**link, "name": f"{source}>{target}", "source": source, "target": target})
    worker = next(node for node in plan["nodes"] if node["role"] == "worker")
    plan["nodes"] += [{**worker, "name": f"{name}/worker0", "data_center": name} for name in far]
    (run / "plan.json").write_text(json.dumps(plan))
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "plan_sha256": ""}))
    server = server_of([run])
    try:
        with page_of(browser, server.url) as page:
            clusters = page.evaluate("page.networks[0].places.clusters.length")
            assert clusters < 400
            assert "data centres" in page.locator("#partial").inner_text()
            page.get_by_label("Find a data centre").fill("far7")
            page.keyboard.press("Enter")
            assert page.locator("#chosen").inner_text() == "far7"
            until(page, "page.lanes[0].rows.length === 1")
            seen = "page.networks[0].places.clusters.filter((each) => each.seen).length"
            until(page, f"{seen} < {clusters} / 4")
    finally:
        server.close()
