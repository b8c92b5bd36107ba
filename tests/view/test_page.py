"""A run's page in a browser: it opens, plays, jumps, zooms and finds, by keyboard and by names of its controls."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.view.opening import saved_page_of, server_of
from tests.results.fake_run import make_run
from tests.view.browser import chromium, clock, page_of, until

HOSTILE = "<img src=x onerror=hacked=1>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run one of whose data centres has a name that would be a program if it became markup."""
    run = make_run(tmp_path_factory.mktemp("runs") / "run")
    for table in (run / "tables").iterdir():
        table.unlink()
    for part in (run / "events").iterdir():
        written = gzip.decompress(part.read_bytes()).replace(b"tokyo", HOSTILE.encode())
        part.write_bytes(gzip.compress(written))
    plan = (run / "plan.json").read_text().replace("tokyo", HOSTILE)
    (run / "plan.json").write_text(plan.replace('"quickstart"', '"<script>hacked=1</script>"'))
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "plan_sha256": ""}))
    return run


def test_a_run_is_played_back_and_asked(browser: Any, hostile: Path, tmp_path: Path) -> None:
    saved = tmp_path / "page.html"
    saved.write_text(saved_page_of([hostile]))
    assert "<script>hacked" not in saved.read_text() and HOSTILE not in saved.read_text()
    with page_of(browser, saved.as_uri()) as page:
        assert page.get_by_role("heading", name="<script>hacked=1</script>").is_visible()
        assert page.locator("#summary").inner_text().startswith("0.00 s of ")
        page.get_by_role("button", name="Play").click()
        until(page, "page.clock.t > 0.2")
        page.keyboard.press("Space")
        stopped = clock(page)
        page.get_by_role("button", name="Play").wait_for()
        page.get_by_label("Jump to").select_option("evaluation")
        page.get_by_role("button", name="Jump ahead").click()
        assert clock(page) > stopped or clock(page) == 0
        assert "accuracy" in page.locator("#told").inner_text()
        page.get_by_label("Time", exact=True).focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#told").inner_text() == ""  # it was about the moment before
        page.get_by_role("button", name="this round").click()
        assert page.evaluate("page.lanes[0].to - page.lanes[0].from") < page.evaluate("page.end") / 4
        page.get_by_label("Lanes of the nodes").focus()
        page.keyboard.press("0")
        assert page.evaluate("page.lanes[0].whole")
        page.get_by_label("Find a data centre").fill(f"virginia>{HOSTILE}")
        page.keyboard.press("Enter")
        assert page.locator("#chosen").inner_text() == f"virginia → {HOSTILE}"
        assert page.evaluate("typeof hacked") == "undefined"


def test_what_is_drawn_is_what_the_run_did(browser: Any, tmp_path: Path) -> None:
    """Colours of the picture where a message must be, and of a link that is used."""
    run = make_run(tmp_path / "run")
    server = server_of([run])
    try:
        with page_of(browser, server.url) as page:
            flying = page.evaluate(
                """() => {
                  const run = page.runs[0];
                  const { messages } = run.tables;
                  const site = (node) => run.plot.nodes.site[node];
                  const crosses = (_, row) => site(messages.source[row]) !== site(messages.target[row]);
                  const row = messages.t0.findIndex(crosses);
                  page.seek((messages.t0[row] + messages.t[row]) / 2);
                  page.draw(performance.now());
                  const [x, y] = page.networks[0].along(row, 0.5);
                  const canvas = page.networks[0].canvas;
                  const ratio = canvas.width / canvas.clientWidth;
                  const seen = canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data;
                  return [Array.from(seen.slice(0, 3)), run.inFlight(page.clock.t).includes(row)];
                }"""
            )
            assert flying == [[0xD5, 0x5E, 0x00], True]  # the colour of contributions
            link = page.evaluate("page.runs[0].linkAt(page.runs[0].linkNumber.get('tokyo>virginia'), 2.0)")
            assert 0 < link["use"] <= link["rate"]
    finally:
        server.close()


def test_before_training_a_page_tells_what_the_run_does_and_what_its_links_carry(browser: Any, tmp_path: Path) -> None:
    """In words, and by dashes that move along the lines of links that carry something."""
    saved = tmp_path / "page.html"
    saved.write_text(saved_page_of([make_run(tmp_path / "run", probes=True)]))
    with page_of(browser, saved.as_uri()) as page:
        told = page.evaluate(
            """() => [0.01, 0.06, 0.16, 0.55, 1.5].map((t) => {
              page.seek(t);
              page.draw(performance.now());
              return document.getElementById("summary").textContent.replace(/^.*? of .*?: /, "");
            })"""
        )
        assert told[0].startswith("the run begins; nothing crosses a link")
        assert told[1].startswith(
            "the network is up: its links are being tried and measured, and nodes start; 4 of 4 directions"
        )
        assert told[2].startswith(
            "the network is up: its links are being tried and measured, and nodes connect; 1 of 4 directions"
        )
        assert told[3].startswith("the links have been measured, and nodes connect; nothing crosses a link")
        assert told[4].startswith("round ")
        drawn = page.evaluate(
            """() => {
              const { canvas, places } = page.networks[0];
              const line = (number) => places.links.find((each) => each.links[0] === number).line;
              const ratio = canvas.width / canvas.clientWidth;
              const copy = canvas.cloneNode().getContext("2d", { willReadFrequently: true });
              const dashes = (number, data) => {
                const [x0, y0, x1, y1] = line(number);
                const dark = [];
                for (let share = 0.3; share < 0.7; share += 0.002) {
                  const x = Math.round((x0 + (x1 - x0) * share) * ratio);
                  const y = Math.round((y0 + (y1 - y0) * share) * ratio);
                  const place = 4 * (y * canvas.width + x);
                  if (data[place] + data[place + 1] + data[place + 2] < 0x1d + 0x21 + 0x29 + 60) dark.push(share);
                }
                return dark;
              };
              const at = (t) => {
                page.seek(t);
                page.draw(performance.now());
                copy.drawImage(canvas, 0, 0);
                const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
                return [dashes(0, data).length > 0, dashes(3, data)];
              };
              return [at(0.16), at(0.17), at(1.5)];
            }"""
        )
        assert [idle for idle, _ in drawn] == [False, False, False]  # of a link that carries nothing
        assert drawn[0][1] and drawn[0][1] != drawn[1][1]  # they move
        assert drawn[2][1] == []  # messages tell
        assert page.locator("li.carried").is_visible()


def test_a_worker_that_is_far_behind_sets_neither_the_round_nor_the_curve_back(browser: Any, tmp_path: Path) -> None:
    """Of a run whose workers do not wait for each other."""
    saved = tmp_path / "page.html"
    saved.write_text(saved_page_of([make_run(tmp_path / "run")]))
    with page_of(browser, saved.as_uri()) as page:
        found = page.evaluate(
            """() => {
              const [run] = page.runs;
              delete run.tables.rounds;
              run.append({ samples: { t: [] }, rounds: { t0: [0, 1, 2, 0], t: [1, 2, 3, 4], round: [0, 1, 2, 0],
                node: [0, 0, 0, 1], loss: [4, 3, 1, 5], steps: [1, 1, 1, 1] } }, []);
              return [[0.5, 3.5, 4.5].map((t) => run.roundAt(t)), page.learning.losses(run)];
            }"""
        )
        assert found == [[-1, 2, 2], [[2, 4], [3, 3]]]  # the mean of each worker's latest loss


def test_passes_have_colours_of_their_own(browser: Any, tmp_path: Path) -> None:
    """The lanes of a run whose steps are backward passes have that colour; the legend has what the run has."""
    run = make_run(tmp_path / "run")
    for table in (run / "tables").iterdir():
        table.unlink()
    for part in (run / "events").iterdir():
        written = gzip.decompress(part.read_bytes()).replace(b'"work":"step"', b'"work":"step","part":"backward 0"')
        part.write_bytes(gzip.compress(written))
    saved = tmp_path / "page.html"
    saved.write_text(saved_page_of([run]))
    with page_of(browser, saved.as_uri()) as page:
        assert page.locator(".lanes li[data-pass=backward]").is_visible()
        assert not page.locator(".lanes li[data-pass=weights]").is_visible()
        drawn = page.evaluate(
            """() => {
              const canvas = page.lanes[0].canvas;
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const found = new Set();
              for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
              return [found.has("0,90,67"), found.has("0,158,115"), found.has("143,214,189")];
            }"""
        )
        assert drawn == [True, True, False]  # backward passes, sums of servers, gradients of weights
