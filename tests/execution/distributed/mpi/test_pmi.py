"""PMI-1 as MPICH's process managers speak it: what it asks at its start, and what must not go unnoticed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from testbed.errors import RunFailed
from testbed.execution.distributed.mpi.pmi import ProcessManager

MISSING = "cmd=get_result rc=-1 msg=key_not_found value=unknown"


def managers(size: int) -> list[ProcessManager]:
    """Whose barrier is an exchange in memory."""
    told: list[dict[str, str]] = []
    everybody = asyncio.Barrier(size)

    async def exchange(put: dict[str, str]) -> list[dict[str, str]]:
        told.append(put)
        async with everybody:
            return list(told)

    return [ProcessManager(size, "run-1", exchange) for _ in range(size)]


def alone() -> ProcessManager:
    async def exchange(put: dict[str, str]) -> list[dict[str, str]]:
        return [put]

    return ProcessManager(1, "run-1", exchange)


def ask(manager: ProcessManager, *lines: str) -> list[str]:
    async def all_of_them() -> list[str]:
        return [await manager.answer(line + "\n") for line in lines]

    return asyncio.run(all_of_them())


def test_what_mpich_asks_first() -> None:
    answers = ask(
        alone(), "cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=get_appnum", "cmd=get_my_kvsname",
        "cmd=get_universe_size", "cmd=get kvsname=run-1 key=PMI_hwloc_xmlfile", "cmd=finalize",
    )  # fmt: skip
    assert answers == [
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096",
        "cmd=appnum rc=0 appnum=0",
        "cmd=my_kvsname rc=0 kvsname=run-1",
        "cmd=universe_size rc=0 size=1",
        MISSING,
        "cmd=finalize_ack rc=0",
    ]


def test_what_one_puts_all_can_get_after_the_barrier_and_not_before() -> None:
    async def start() -> None:
        ranks = managers(3)

        async def one(rank: int) -> list[str]:
            manager = ranks[rank]
            assert "rc=0" in await manager.answer(f"cmd=put kvsname=run-1 key=card-{rank} value=0A{rank}[8]=x y\n")
            assert await manager.answer("cmd=get kvsname=run-1 key=card-0\n") == MISSING
            assert await manager.answer("cmd=barrier_in\n") == "cmd=barrier_out rc=0 msg=success"
            return [await manager.answer(f"cmd=get kvsname=run-1 key=card-{other}\n") for other in range(3)]

        expected = [f"cmd=get_result rc=0 msg=success value=0A{other}[8]=x y" for other in range(3)]
        assert await asyncio.gather(*map(one, range(3))) == [expected] * 3

    asyncio.run(start())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cmd=spawn nprocs=3", "unknown request .*: 'cmd=spawn"),
        ("mcmd=spawn", "unknown"),
        ("", "unknown"),
        ("cmd=put kvsname=run-1 value=1", "lacks key"),
        ("cmd=put kvsname=run-1 key=a", "lacks value"),
        ("cmd=get kvsname=run-1", "lacks key"),
        ("cmd=abort exitcode=15", "aborted .*exitcode=15"),
    ],
)
def test_an_unknown_request_ends_the_run(line: str, says: str) -> None:
    with pytest.raises(RunFailed, match=says):
        ask(alone(), line)


async def served(sent: bytes) -> bytes:
    """What comes back on a socket after ``sent`` and a hang-up."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    try:
        await alone().serve(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
    theirs.settimeout(5)
    with theirs:
        return theirs.recv(65536)


def test_lines_come_as_a_stream_until_the_other_end_hangs_up() -> None:
    assert asyncio.run(served(b"cmd=get_appnum\ncmd=barrier_in\n")) == (
        b"cmd=appnum rc=0 appnum=0\ncmd=barrier_out rc=0 msg=success\n"
    )


@pytest.mark.parametrize("sent", [b"\xff\xfe\n", b"x" * 100_000], ids=["no text", "a line without end"])
def test_what_is_no_protocol_ends_the_run(sent: bytes) -> None:
    with pytest.raises(RunFailed, match="does not speak PMI-1"):
        asyncio.run(served(sent))
