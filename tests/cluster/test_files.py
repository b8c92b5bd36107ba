"""Files of nodes come home as they grow, and a checkpoint when all of it is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from testbed.cluster.control import Content
from testbed.cluster.files import ReceivedFiles, SentFiles, checkpoint_parts, put, remove_incomplete


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def test_events_come_home_as_they_grow_and_parts_of_a_second_agent_follow(tmp_path: Path) -> None:
    sent, home = SentFiles(tmp_path / "agent"), ReceivedFiles(tmp_path / "run")
    for data in (b"one", b"two"):
        write(tmp_path / "agent/events/a.worker0.0000.jsonl.gz", data)
        sent.send_new(home.take)
        sent.send_new(home.take)
    second, home_again = SentFiles(tmp_path / "other"), ReceivedFiles(tmp_path / "run")
    write(tmp_path / "other/events/a.worker0.0000.jsonl.gz", b"three")
    second.send_new(home_again.take)
    assert (tmp_path / "run/events/a.worker0.0000.jsonl.gz").read_bytes() == b"onetwo"
    assert (tmp_path / "run/events/a.worker0.0001.jsonl.gz").read_bytes() == b"three"
    assert home_again.events == [tmp_path / "run/events/a.worker0.0001.jsonl.gz"]


def test_parts_that_are_home_take_no_room_on_their_machine_however_many_there_are(tmp_path: Path) -> None:
    sent, home = SentFiles(tmp_path / "agent"), ReceivedFiles(tmp_path / "run")
    parts = [tmp_path / f"agent/events/a.worker0.{number}.jsonl.gz" for number in (9999, 10_000, 10_001)]
    for part in parts:
        write(part, part.name.encode())
        sent.send_new(home.take)
    sent.send_new(home.take)
    assert [part.read_bytes() for part in parts] == [b"", b"", parts[-1].name.encode()]
    assert [path.read_bytes().decode() for path in home.events] == [part.name for part in parts]


def test_a_checkpoint_counts_when_all_its_parts_are_home(tmp_path: Path) -> None:
    about = {"round": 4, "files": {"a.pt": "1", "b.pt": "2"}, "nodes": {"a.pt": "east/a", "b.pt": "west/b"}}
    east, west = tmp_path / "east", tmp_path / "west"
    home = ReceivedFiles(tmp_path / "run"), ReceivedFiles(tmp_path / "run")
    senders = SentFiles(east), SentFiles(west)
    write(east / "checkpoints/.ckpt-000005.tmp/a.pt", b"state of a")
    senders[0].send_new(home[0].take)
    write(east / "checkpoints/ckpt-000005/manifest.json", json.dumps(about).encode())
    senders[0].send_new(home[0].take)
    assert checkpoints(tmp_path / "run") == [".ckpt-000005.tmp"]
    write(west / "checkpoints/.ckpt-000005.tmp/b.pt", b"state of b")
    senders[1].send_new(home[1].take)
    assert checkpoints(tmp_path / "run") == ["ckpt-000005"]
    for part in checkpoint_parts(tmp_path / "run/checkpoints/ckpt-000005", frozenset({"west/b"})):
        put(tmp_path / "again", part)
    again = tmp_path / "again/checkpoints/ckpt-000005"
    assert sorted(path.name for path in again.iterdir()) == ["b.pt", "manifest.json"]
    assert (again / "b.pt").read_bytes() == b"state of b"
    assert json.loads((again / "manifest.json").read_text())["files"] == {"b.pt": "2"}


def test_a_file_that_comes_again_while_its_checkpoint_is_completed_or_given_up_does_no_harm(tmp_path: Path) -> None:
    about = {"round": 4, "files": {"a.pt": "1"}, "nodes": {"a.pt": "east/a"}}
    east, west = ReceivedFiles(tmp_path / "run"), ReceivedFiles(tmp_path / "run")
    part: Content = {"file": "checkpoints/ckpt-000005/a.pt", "at": 0, "data": b"state of a"}
    end: Content = {"file": "checkpoints/ckpt-000005/a.pt", "last": 10}
    for message in (part, end, part):
        east.take(message)
    manifest = {"file": "checkpoints/ckpt-000005/manifest.json", "at": 0, "data": json.dumps(about).encode()}
    west.take(manifest)
    west.take({"file": manifest["file"], "last": 1})
    east.take(end)
    newest = tmp_path / "run/checkpoints/ckpt-000005"
    assert sorted(path.name for path in newest.iterdir()) == ["a.pt", "manifest.json"]
    east.take(part | {"file": "checkpoints/ckpt-000010/a.pt"})
    shutil.rmtree(tmp_path / "run/checkpoints/.ckpt-000010.tmp")
    east.take(end | {"file": "checkpoints/ckpt-000010/a.pt"})
    assert checkpoints(tmp_path / "run") == ["ckpt-000005"]


def test_what_came_of_a_checkpoint_that_was_given_up_goes_with_the_next_and_with_the_attempt(tmp_path: Path) -> None:
    home, run = ReceivedFiles(tmp_path / "run"), tmp_path / "run"

    def bring(number: int, name: str, data: bytes) -> None:
        file = f"checkpoints/ckpt-{number:06d}/{name}"
        home.take({"file": file, "at": 0, "data": data})
        home.take({"file": file, "last": len(data)})

    about = json.dumps({"round": 999_998, "files": {"a.pt": "1"}, "nodes": {"a.pt": "east/a"}}).encode()
    for number in (999_998, 999_999, 1_000_000):
        bring(number, "a.pt", b"state of a")
    bring(999_999, "manifest.json", about)
    assert checkpoints(run) == [".ckpt-1000000.tmp", "ckpt-999999"]
    remove_incomplete(run)
    assert checkpoints(run) == ["ckpt-999999"]


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "events/../x", "events/a/b", "result.json", "checkpoints/x", "failures/.hidden", "events/a"]
)
def test_an_agent_writes_files_of_the_run_only(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        ReceivedFiles(tmp_path / "run").take({"file": name, "at": 0, "data": b"x"})
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "run"], [tmp_path / "run", tmp_path / "run/events"])
