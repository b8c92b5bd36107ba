"""The netlink client, against the kernel: it needs no privilege to read."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from emulation.netlink import ACK, REQUEST, NetlinkSocket

GET_LINK = 18
NOBODYS_INDEX = 0x7FFFFFFF


def link(index: int) -> bytes:
    """``struct ifinfomsg``."""
    return struct.pack("=BxHiII", 0, 0, index, 0, 0)


@pytest.fixture
def netlink() -> Iterator[NetlinkSocket]:
    opened = NetlinkSocket()
    yield opened
    opened.close()


def test_the_answer_of_an_interrupted_request_is_not_that_of_the_next(netlink: NetlinkSocket) -> None:
    netlink._send(GET_LINK, REQUEST | ACK, link(NOBODYS_INDEX))  # an exception came before its answer was read
    assert netlink.dump(GET_LINK, link(0))
