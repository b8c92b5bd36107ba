"""The part of a checkpoint that belongs to a script: the states of its objects and random generators, as bytes."""

from __future__ import annotations

import codecs
import io
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, serialization

from testbed.errors import ScenarioError

Generators = dict[str, Any]
# classes and functions in pickled arrays and numbers of numpy; loading them runs no foreign code
_NUMPY: list[Any] = [
    np.ndarray,
    np.dtype,
    np.zeros(1).__reduce__()[0],
    np.float64(0).__reduce__()[0],
    codecs.encode,
    *{type(np.dtype(code)) for code in np.typecodes["All"] if code != "O"},
]


def generator_states() -> Generators:
    name, keys, position, has_gauss, gauss = np.random.get_state()
    numpy_state = [str(name), torch.tensor(np.asarray(keys, np.int64)), int(position), int(has_gauss), float(gauss)]
    return {"torch": torch.get_rng_state(), "numpy": numpy_state, "random": random.getstate()}


def saved_objects(objects: Mapping[str, Any], generators: Generators) -> Tensor:
    """Return the states of ``objects`` and generators as a tensor of bytes.

    Raise ``ScenarioError`` for a state that could not be loaded again, as loading runs no code from a checkpoint.
    """
    states = {name: each.state_dict() for name, each in objects.items()}
    content = to_bytes({"objects": states, **generators})
    if _unknown(content):
        for name, state in states.items():
            if unknown := _unknown(to_bytes(state)):
                raise ScenarioError(
                    f"steps: the state of '{name}' holds {', '.join(unknown)}, which a checkpoint cannot; "
                    "let its state_dict return tensors, numpy arrays, numbers, texts, lists and dicts"
                )
    return content


def to_bytes(content: Any) -> Tensor:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> Any:
    with serialization.safe_globals(_NUMPY):
        return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)


def _unknown(content: Tensor) -> list[str]:
    """Return the names of the classes and functions in ``content`` that ``from_bytes`` would refuse."""
    with serialization.safe_globals(_NUMPY):
        return sorted(serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content.numpy().tobytes())))


def load_objects(content: Tensor, objects: Mapping[str, Any], generators: bool = True) -> None:
    """Load what ``saved_objects`` returned; with ``generators=False``, leave the random generators as they are.

    Raise ``ScenarioError`` if the checkpoint holds other objects.
    """
    kept = from_bytes(content)
    if kept["objects"].keys() != objects.keys():
        raise ScenarioError(
            f"steps: the checkpoint holds {', '.join(kept['objects']) or 'nothing'}, but the script names "
            f"{', '.join(objects) or 'nothing'}; name the same objects"
        )
    for name, each in objects.items():
        each.load_state_dict(kept["objects"][name])
    if not generators:
        return
    name, keys, *others = kept["numpy"]
    torch.set_rng_state(kept["torch"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *others))
    random.setstate(kept["random"])
