"""A rank's process manager: the part of PMI-1 that MPICH needs to start, which ``mpiexec`` would otherwise serve.

MPICH sends requests on a socket, one per line (``cmd=get kvsname=… key=…``), and waits for each answer. Values that
ranks have put before a barrier can be read by all after it. Each worker serves its own MPICH, and a barrier is an
exchange between the workers over the run's own connections, so it works across namespaces and notices a lost peer.
"""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable

from testbed.errors import RunFailed

Exchange = Callable[[dict[str, str]], Awaitable[list[dict[str, str]]]]
"""Sends what this rank has put to all ranks; returns what each rank has put, this one included."""

NAME_BYTES, KEY_BYTES, VALUE_BYTES = 256, 64, 4096
MISSING = "cmd=get_result rc=-1 msg=key_not_found value=unknown"


class ProcessManager:
    """Serves one rank. ``name``: of the key-value space, the same for all ranks of this run and for no other run.

    ``at_barrier``: MPICH waits for other ranks, for ever if one of them is lost.
    """

    def __init__(self, size: int, name: str, exchange: Exchange) -> None:
        self._exchange = exchange
        self._always = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": f"cmd=maxes rc=0 kvsname_max={NAME_BYTES} keylen_max={KEY_BYTES} vallen_max={VALUE_BYTES}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_universe_size": f"cmd=universe_size rc=0 size={size}",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={name}",
            "put": "cmd=put_result rc=0 msg=success",
            "barrier_in": "cmd=barrier_out rc=0 msg=success",
            "finalize": "cmd=finalize_ack rc=0",
        }
        self._known: dict[str, str] = {}
        self._put: dict[str, str] = {}  # since the last barrier
        self.at_barrier = False

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer until MPICH closes the socket. Raise ``RunFailed`` at an unknown request."""
        while line := await _line(reader):
            writer.write(f"{await self.answer(line)}\n".encode())
            await writer.drain()

    async def answer(self, line: str) -> str:
        asked = _fields(line)
        match asked.get("cmd"):
            case "put":
                self._put[_field(asked, "key", line)] = _field(asked, "value", line)
            case "get":
                value = self._known.get(_field(asked, "key", line))
                return MISSING if value is None else f"cmd=get_result rc=0 msg=success value={value}"
            case "barrier_in":
                await self._barrier()
            case "abort":
                raise RunFailed(f"MPICH has aborted ({line[:200].strip()}); host.log has its messages")
            case command if command not in self._always:
                raise RunFailed(f"unknown request of MPICH to its process manager: {line[:200]!r}")
        return self._always[asked["cmd"]]

    async def _barrier(self) -> None:
        put, self._put = self._put, {}
        self.at_barrier = True
        for theirs in await self._exchange(put):
            self._known.update(theirs)
        self.at_barrier = False


async def _line(reader: StreamReader) -> str:
    try:
        return (await reader.readline()).decode()
    except ValueError as error:  # not text, or longer than any line of this protocol
        raise RunFailed(f"MPICH does not speak PMI-1 to its process manager: {error}") from error
    except ConnectionError:
        return ""


def _fields(line: str) -> dict[str, str]:
    """``cmd=put key=a value=b c`` as a mapping; only a value may have blanks."""
    head, has_value, value = line.rstrip("\n").partition(" value=")
    fields = dict(word.partition("=")[::2] for word in head.split())
    return {**fields, "value": value} if has_value else fields


def _field(asked: dict[str, str], name: str, line: str) -> str:
    if name not in asked:
        raise RunFailed(f"a request of MPICH to its process manager lacks {name}: {line[:200]!r}")
    return asked[name]
