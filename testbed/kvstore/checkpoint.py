"""What checkpoints hold of a script: the states of its objects and of its random generators, as a tensor of bytes."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.errors import ScenarioError

Generators = dict[str, Any]


def generator_states() -> Generators:
    """Return where the generators of torch, numpy and ``random`` are."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    numpy_state = [str(name), torch.tensor(np.asarray(keys, np.int64)), int(position), int(has_gauss), float(gauss)]
    return {"torch": torch.get_rng_state(), "numpy": numpy_state, "random": random.getstate()}


def saved_objects(objects: Mapping[str, Any], generators: Generators) -> Tensor:
    """Return the states of ``objects`` and generators."""
    return to_bytes({"objects": {name: each.state_dict() for name, each in objects.items()}, **generators})


def to_bytes(content: Any) -> Tensor:
    """Return tensors and plain values as a tensor of bytes."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> Any:
    """Inverse of ``to_bytes``."""
    return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)


def load_objects(content: Tensor, objects: Mapping[str, Any], generators: bool = True) -> None:
    """Inverse of ``saved_objects``; without its ``generators``, if they are another worker's.

    Raise ``ScenarioError`` if other objects were kept.
    """
    kept = from_bytes(content)
    if kept["objects"].keys() != objects.keys():
        raise ScenarioError(
            f"steps: the checkpoint holds {', '.join(kept['objects']) or 'nothing'}, and the script names "
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
