"""Socket options."""

from __future__ import annotations

import dataclasses
import socket

import pytest

from testbed.errors import CapabilityError, RunFailed
from testbed.realtime.sockets import configure, listen
from testbed.settings.run import Transport
from tests.contract.tiny import WORKER, tiny_plan


class TestSockets:
    def test_options_are_set_from_the_plan(self) -> None:
        with listen(("127.0.0.1", 0)) as sock:
            transport = Transport(congestion_control="reno", unsent_limit_bytes=65_536)
            configure(sock, dataclasses.replace(tiny_plan([WORKER]), transport=transport))
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"reno\0")
            assert sock.getsockopt(socket.IPPROTO_TCP, 25) == 65_536
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

    def test_a_congestion_control_that_is_not_there_is_an_error_with_its_cure(self) -> None:
        transport = dataclasses.replace(Transport(), congestion_control="warp")
        with listen(("127.0.0.1", 0)) as sock, pytest.raises(CapabilityError, match=r"'warp'.*available: .*modprobe"):
            configure(sock, dataclasses.replace(tiny_plan([WORKER]), transport=transport))

    def test_an_address_that_is_taken_is_named(self) -> None:
        with listen(("127.0.0.1", 0)) as sock, pytest.raises(RunFailed, match=f"127.0.0.1:{sock.getsockname()[1]}: "):
            listen(sock.getsockname())
