"""The server of a page: strangers get nothing, no request reads another file, and a run in progress is streamed."""

import html
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from analysis.view import source
from analysis.view.opening import saved_page_of, server_of
from analysis.view.server import ViewServer
from analysis.view.source import _MOST_OF_A_CORE, _TO_BEGIN_S, LARGEST_SAVED_BYTES, next_poll_s
from testbed.api import open_run
from testbed.cli.main import main
from testbed.errors import ScenarioError
from testbed.results.rundir import RunDirectory
from tests.results.fake_run import make_plan, make_run, write_events


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


@pytest.fixture
def server(run: Path) -> Iterator[ViewServer]:
    server = server_of([run])
    yield server
    server.close()


def get(server: ViewServer, path: str, host: str = "") -> tuple[int, bytes, http.client.HTTPMessage]:
    """Ask for a path; ``%`` stands for that of the page."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=30)
    connection.request("GET", path.replace("%", place.path), headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


def test_a_stranger_gets_nothing(server: ViewServer) -> None:
    for path in ("/", "/data", "/x/", f"/{server.token[:-1]}/", f"/{server.token}x/data", f"/%20{server.token}/"):
        status, content, headers = get(server, path)
        assert (status, content) == (404, b""), path
        assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert get(server, "%", host="evil.example:80")[0] == 404  # by a name that leads to this machine
    assert server._http.server_address[0] == "127.0.0.1"


def test_nothing_outside_of_the_page_is_served(server: ViewServer, run: Path) -> None:
    for path in (
        "%plan.json",
        "%static/../page.py",
        "%static/%2e%2e/page.py",
        "%../x",
        "%static/",
        "%static/run.html",
        f"%{run}/plan.json",
        "%part?run=7",
        "%part?run=-1",
        "%part?from=x",
        "%part?site=../..",
        "%runs/0/",
    ):
        assert get(server, path)[:2] == (404, b""), path


def test_the_page_may_load_only_what_comes_with_it(server: ViewServer) -> None:
    status, content, headers = get(server, "%")
    assert status == 200
    nonce = re.search(r"nonce-(\w+)", headers["Content-Security-Policy"])
    assert nonce is not None and content.count(nonce[1].encode()) == content.count(b"<script")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert get(server, "%")[1] != content  # the next page has another nonce
    assert headers["Referrer-Policy"] == "no-referrer"
    scripts = re.findall(rb'src="([^"]+)"|href="(/[^"]+)"', content)
    for path in filter(None, (b"".join(each).decode() for each in scripts)):
        assert get(server, path)[0] == 200, path


def started_run(folder: Path) -> RunDirectory:
    """A run of which nothing but the Plan is known yet."""
    finished = make_run(folder / "finished")
    run = RunDirectory(folder / "live")
    run.path.mkdir()
    shutil.copy(finished / "plan.json", run.path)
    run.set_status("running", "")
    return run


def test_a_run_in_progress_is_told_as_it_is_written_until_it_ends(tmp_path: Path) -> None:
    run = started_run(tmp_path)
    server = server_of([run.path])
    try:
        [begun] = json.loads(get(server, "%data")[1])["runs"]
        assert begun["live"] and begun["history"]["messages"]["t"] == []
        write_events(make_plan(), run.events)
        viewed = server.run(0)
        parts, more = viewed.news(0, 0)
        assert len(parts) == 1 and more
        viewed._next_s = 0.0
        assert viewed.news(0, 1) == ([], True)  # nothing new is not told
        run.set_status("interrupted", "")
        told = get(server, "%stream")[1].split(b"\n\n")
        parts = [json.loads(each.removeprefix(b"data: ")) for each in told if each.startswith(b"data: ")]
        assert [part["live"] for part in parts] == [True, False]
        assert parts[-1]["state"] == "interrupted"
        [whole] = json.loads(get(server, "%data")[1])["runs"]
        live = parts[0]["history"]
        for table, columns in whole["history"].items():
            for name, values in columns.items() if table not in ("paths", "carried") else ():
                assert len(live[table][name]) == len(values), (table, name)
    finally:
        server.close()


def test_a_data_centre_that_a_large_page_does_not_hold_is_told_while_the_run_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MOST_NODES", 5)  # so that the page holds the work of virginia alone
    run = started_run(tmp_path)
    server = server_of([run.path])
    try:
        [begun] = json.loads(get(server, "%data")[1])["runs"]
        nodes = begun["plot"]["nodes"]
        assert [begun["plot"]["vertices"][site] for site in begun["partial"]] == ["virginia"]
        assert json.loads(get(server, "%part?site=tokyo")[1])["history"]["work"]["t"] == []
        write_events(make_plan(), run.events)
        grown = json.loads(get(server, "%part?site=tokyo")[1])
        assert grown["live"] and grown == json.loads(get(server, "%part?site=tokyo")[1])  # nothing is told twice
        # The stream tells of it. A 404 would make a browser complain when the page asks just before the run has ended.
        assert get(server, "%part?site=virginia")[:2] == (200, b"null")
        run.set_status("done", "")
        get(server, "%stream")
        whole = json.loads(get(server, "%part?site=tokyo&to=1000")[1])["history"]
        assert sorted(grown["history"]["work"]["t0"]) == sorted(whole["work"]["t0"]) != []
        assert len(grown["history"]["rounds"]["t"]) == 2 * 8  # of two workers
        moved = grown["history"]["messages"]
        ends = {nodes["name"][each].split("/")[0] for each in moved["source"] + moved["target"]}
        assert ends == {"tokyo", "virginia"}  # and none between other places
    finally:
        server.close()


def test_what_a_page_takes_of_a_core_counts_since_it_was_opened() -> None:
    """So the first rows, which cost most to read, do not delay the next ones of a page that is open for long."""
    soon_s = next_poll_s(now_s=100.0, opened_s=0.0, polled_s=1.0, trains=True)
    assert 100.0 < soon_s < 101.0
    later_s = next_poll_s(now_s=100.0, opened_s=99.0, polled_s=1.0, trains=True)
    assert later_s - 99.0 == pytest.approx((1.0 - _TO_BEGIN_S) / _MOST_OF_A_CORE)


def test_a_page_looks_more_often_until_training_begins() -> None:
    waits_s = [next_poll_s(now_s=1.0, opened_s=0.9, polled_s=0.2, trains=trains) - 1.0 for trains in (False, True)]
    assert 0 < waits_s[0] < waits_s[1] / 3


def test_a_killed_run_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    finished = make_run(tmp_path / "finished")
    run = RunDirectory(tmp_path / "killed")
    shutil.copytree(finished / "events", run.events)
    part = sorted(run.events.iterdir())[0]
    part.write_bytes(part.read_bytes()[:-40])  # its end is missing
    shutil.copy(finished / "plan.json", run.path)
    run.set_status("running", "")
    status = json.loads((run.path / "status.json").read_text())
    status["owner"]["start_ticks"] -= 1  # a process that has gone, whose number is another one's now
    (run.path / "status.json").write_text(json.dumps(status))
    server = server_of([run.path])
    try:
        [whole] = json.loads(get(server, "%data")[1])["runs"]
        assert whole["state"] == "crashed" and not whole["live"]
        assert len(whole["history"]["messages"]["t"]) > 100
    finally:
        server.close()


def test_a_saved_page_is_one_small_file_without_folders_of_its_author(run: Path) -> None:
    text = saved_page_of([run])
    assert len(text) < LARGEST_SAVED_BYTES and str(run.parent) not in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http://" not in re.sub(r"http://www.w3.org\S*", "", text)


def test_a_folder_of_runs_is_a_table(run: Path) -> None:
    server = server_of([run.parent])
    try:
        [row] = json.loads(get(server, "%data")[1])["rows"]
        assert row["label"] == "run" and row["accuracy"] > 0.9 and row["state"] == "done"
        assert get(server, "%runs/0/")[0] == 200 and get(server, "%runs/1/")[0] == 404
        assert json.loads(get(server, "%runs/0/data")[1])["runs"][0]["label"] == "run"
    finally:
        server.close()
    with pytest.raises(ScenarioError, match="neither a run, nor a sweep, nor a folder of runs"):
        server_of([run / "tables"])


def test_a_notebook_shows_the_page_in_a_frame(run: Path) -> None:
    shown = open_run(run).view(height=500)._repr_html_()
    held = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" title="testbed view" width="100%" height="500" [^>]*></iframe>', shown
    )
    assert held is not None and html.unescape(held[1]).startswith("<!doctype html>")


@pytest.mark.slow  # 15 s
def test_a_run_opens_its_page_at_the_start_and_keeps_it_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "run",
        "quickstart",
        "--on",
        "simulate",
        "--view",
        "--quiet",
        "--set",
        "training.rounds=10",
        "--out",
        str(tmp_path / "run"),
    ]
    environment = {**os.environ, "BROWSER": "true"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as run:
        assert run.stderr is not None
        url = next(line for line in run.stderr if line.startswith("view: http")).removeprefix("view: ").strip()
        with urllib.request.urlopen(f"{url}stream") as stream:  # until the run has ended
            told = [json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: ")]
        assert sum(len(part["history"]["rounds"]["t"]) for part in told) == 60  # of six workers
        assert [part["live"] for part in told][-1] is False and len(told) > 1
        assert any("stays until" in line for line in run.stderr)
        run.send_signal(signal.SIGINT)
        assert run.wait(30) == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_the_command_writes_a_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(run), "--save", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert main(["view", str(run), "--save", str(tmp_path / "page.txt")]) == 2
