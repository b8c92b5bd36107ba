"""Commands on other machines, as of ssh: ``serve`` on each machine, ``ssh`` and ``srun`` as commands on one of them.

A recipe that ends Ray ends it in its own process namespace, so everything of it has to run inside the machines.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any

PORT, STARTED_S = 2222, 30.0


def serve() -> None:
    """Run a command per connection: its words come as a line, its output goes back, then its status as a last line."""
    with socket.create_server(("", PORT)) as server:
        while True:
            threading.Thread(target=_run, args=(server.accept()[0],), daemon=True).start()


def _run(connection: socket.socket) -> None:
    with connection, connection.makefile("rw") as stream:
        words = json.loads(stream.readline())
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            stream.write(line)
            stream.flush()
        stream.write(f"status {process.wait()}\n")


def _connection(host: str) -> socket.socket:
    """Connect to a host that may have been started just now."""
    deadline_s = time.monotonic() + STARTED_S
    while True:
        try:
            return socket.create_connection((host, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def run(host: str, words: list[str], status: dict[str, int]) -> None:
    """Run a command on a host; print what it says."""
    status[host] = 255
    with _connection(host) as connection, connection.makefile("rw") as stream:
        stream.write(json.dumps(words) + "\n")
        stream.flush()
        for line in stream:
            if line.startswith("status "):
                status[host] = int(line.split()[1])
            else:
                sys.stdout.write(line)
                sys.stdout.flush()


def main(name: str, words: list[str], hosts: list[str]) -> int:
    """Act as ``ssh HOST COMMAND``, or as ``srun`` on all ``hosts``."""
    status: dict[str, int] = {}
    if name == "ssh":
        run(words[0], ["bash", "-c", " ".join(words[1:])], status)
        return status[words[0]]
    while words[0].startswith("--"):
        words.pop(0)
    threads: list[Any] = [threading.Thread(target=run, args=(host, words, status)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(status.values())


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    sys.exit(main(sys.argv[1], sys.argv[3:], sys.argv[2].split(",")))
