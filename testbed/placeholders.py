"""Placeholders in the commands of users' programs (``{rank}`` is the rank of the process), and names of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

PLACEHOLDERS: Mapping[str, str] = {
    "rank": "rank of the process, from 0 on",
    "world_size": "number of processes, if all nodes have one",
    "local_rank": "rank of the process on its host",
    "local_world_size": "number of processes on its host",
    "workers": "number of workers that the host stands for",
    "node": "name of the node, such as tokyo/worker0",
    "data_center": "data centre of the node",
    "host": "host name of the node, such as worker0.tokyo",
    "address": "IPv4 address of the node",
    "hosts": "host names of all nodes by rank, with commas between",
    "addresses": "IPv4 addresses of all nodes by rank, with commas between",
    "hostfile": "file with a line per worker: its host name",
    "interface": "network interface of the node",
    "master_addr": "address of the first node",
    "master_port": "port for the processes to meet at, on the first node",
    "run_dir": "run directory",
}
_INTERPRETER = re.compile(r"python[\d.]*|sh|bash")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with the placeholders that ``values`` names replaced; other braces stay as they are."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def unknown(text: str) -> Iterator[str]:
    """Yield the words in braces that are not placeholders: misspelt ones, or braces meant for the program itself."""
    return (word for word in _PLACEHOLDER.findall(text) if word not in PLACEHOLDERS)


def title_of(command: Sequence[str]) -> str:
    """Return a short name of a command: the name of its program, or of the script that an interpreter runs."""
    names = [PurePath(argument).name for argument in command if not argument.startswith("-")]
    is_script = len(names) > 1 and _INTERPRETER.fullmatch(names[0]) and " " not in names[1]
    return names[1 if is_script else 0] if names else ""
