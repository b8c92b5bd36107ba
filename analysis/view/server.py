"""The HTTP server of a page, for browsers on this machine only.

It listens on the loopback address. Every path begins with a random token, which other users of the machine and pages of
other origins do not know; without it, a request gets an empty 404. Paths of requests are not paths of files: the server
only answers those listed here.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, urlsplit

from analysis.view.page import FILES, TYPES, json_of, policy, served_page, static
from analysis.view.source import ViewedRun

_STREAM_EVERY_S = 0.1
_NOTHING = (404, "text/plain", b"", "")
_MOST_TOGETHER = 4  # runs on one clock
Answer = tuple[int, str, bytes, str]  # status, type, content, nonce of a page


class ViewServer:
    """Serves a page of runs at ``url``, or a page with a table of runs.

    runs     the runs, or a function that opens the run with a given index
    count    number of runs
    listing  returns the table; ``None`` for a page of runs
    """

    def __init__(
        self,
        runs: Sequence[ViewedRun] | Callable[[int], ViewedRun],
        count: int,
        listing: Callable[[], dict[str, Any]] | None = None,
        port: int = 0,
    ) -> None:
        self._open = runs if callable(runs) else runs.__getitem__
        self._count = count
        self._listing = listing
        self._opened: dict[int, ViewedRun] = {}
        self._lock = threading.Lock()
        self.token = secrets.token_urlsafe(24)
        self.ended = threading.Event()
        self.streams = 0
        handler = type("Handler", (_Handler,), {"view": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/{self.token}/"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.2,), name="view", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()

    def run(self, number: int) -> ViewedRun:
        """Return a run by its index; it is opened at the first call."""
        with self._lock:
            if number not in self._opened:
                self._opened[number] = self._open(number)
            return self._opened[number]

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        """Return the answer to a request. ``path``: the path after the token."""
        if path.startswith("static/"):
            name = path.removeprefix("static/")
            return (200, TYPES[PurePosixPath(name).suffix], static(name), "") if name in FILES else _NOTHING
        numbers, rest = self._numbers(path)
        if rest == "":
            return self._page("sweep" if numbers is None else "run")
        if rest == "data" and numbers is None:
            return _json(self._listing()) if self._listing else _NOTHING
        if rest == "data" and numbers is not None:
            return _json({"runs": [self.run(number).whole() for number in numbers]})
        return self._part(numbers, query) if rest == "part" and numbers is not None else _NOTHING

    def _page(self, kind: str) -> Answer:
        nonce = secrets.token_hex(8)
        return 200, "text/html", served_page(kind, f"/{self.token}/", nonce).encode(), nonce

    def numbers_of_stream(self, path: str) -> list[int] | None:
        numbers, rest = self._numbers(path)
        return numbers if rest == "stream" else None

    def _numbers(self, path: str) -> tuple[list[int] | None, str]:
        """Return the runs that a path names (``None``: the table itself), and the rest of the path."""
        if self._listing is None:
            return list(range(self._count)), path
        head, _, rest = path.partition("/")
        chosen, _, rest = rest.partition("/")
        numbers = [int(each) for each in chosen.split(",") if each.isdecimal() and len(each) < 8]
        known = head == "runs" and 0 < len(numbers) <= _MOST_TOGETHER and max(numbers) < self._count
        return (numbers, rest) if known else (None, path)

    def _part(self, numbers: list[int], query: dict[str, str]) -> Answer:
        try:
            place = int(query.get("run", "0"))
            if not 0 <= place < len(numbers):
                return _NOTHING
            run = self.run(numbers[place])
            return _json(run.part(float(query.get("from", "0")), float(query.get("to", "0")), query.get("site", "")))
        except ValueError:
            return _NOTHING


def _json(content: Any) -> Answer:
    return 200, "application/json", json_of(content), ""


class _Handler(BaseHTTPRequestHandler):
    view: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "testbed"
    sys_version = ""

    def do_GET(self) -> None:
        with suppress(ConnectionError):  # the browser has gone
            path = self._path()
            if path is None:
                self._send(_NOTHING)
            elif (numbers := self.view.numbers_of_stream(path)) is not None:
                self._stream(numbers)
            else:
                query = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
                self._send(self.view.answer(path, query))

    def _path(self) -> str | None:
        """Return the path after the token; ``None`` without the token, or if the request was for another host."""
        token, _, path = urlsplit(self.path).path.removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode(), self.view.token.encode())
        ours = (self.headers.get("Host") or "").rpartition(":")[0] in ("127.0.0.1", "localhost")
        return path if known and ours else None

    def _send(self, answer: Answer) -> None:
        status, kind, content, nonce = answer
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self._protect(nonce)
        self.end_headers()
        self.wfile.write(content)

    def _protect(self, nonce: str) -> None:
        self.send_header("Content-Security-Policy", policy(nonce, served=True) if nonce else "default-src 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")

    def _stream(self, numbers: list[int]) -> None:
        """Send the news of runs in progress as server-sent events until all have ended."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self._protect("")
        self.end_headers()
        self.close_connection = True
        told = dict.fromkeys(numbers, 0)
        growing = set(numbers)
        self.view.streams += 1
        try:
            while growing and not self.view.ended.is_set():
                for place, number in enumerate(numbers):
                    parts, more = self.view.run(number).news(place, told[number])
                    told[number] += len(parts)
                    for part in parts:
                        self.wfile.write(b"data: " + part + b"\n\n")
                    if not more:
                        growing.discard(number)
                self.wfile.write(b": here\n\n")  # fails if the browser has gone
                self.wfile.flush()
                self.view.ended.wait(_STREAM_EVERY_S)
        finally:
            self.view.streams -= 1

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as in the base class
        """Say nothing: the token is in every path."""
