"""The store of a script outside a run."""

from __future__ import annotations

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.kvstore import KVStore
from testbed.kvstore.session import Alone
from tests.for_each import for_each


def test_a_handle_gives_the_value_of_its_own_round() -> None:
    store = KVStore(Alone())
    store.init("a", torch.zeros(1))
    first, second = store.push("a", torch.ones(1)), store.push("a", torch.full((1,), 10.0))
    assert (first.wait().item(), second.wait().item(), store.pull("a").item()) == (1, 10, 10)


def test_a_call_that_came_too_early_is_named() -> None:
    store = KVStore(Alone())
    store.barrier()
    with pytest.raises(ScenarioError, match=r"init\('a'\) comes after barrier; declare all keys before"):
        store.init("a", torch.zeros(1))
    with pytest.raises(ScenarioError, match="set_optimizer comes after barrier"):
        store.set_optimizer("sgd")


class DTensor(torch.Tensor):
    """A tensor that looks like one of torch.distributed, which needs processes."""

    def full_tensor(self) -> torch.Tensor:
        return torch.ones(2)


@for_each(
    ("tensor", "why"),
    [
        (torch.tensor([1.0, 1e39], dtype=torch.float64), r"is float64, .* float32.*tensor\.float\(\)"),
        (torch.ones(2, dtype=torch.complex64), r"is complex64, .*torch\.view_as_real"),
        (torch.tensor([3, 123456789]), "holds the integer 123456789"),
        (torch.tensor([-(2**63), 0]), "holds the integer -9223372036854775808"),
        (torch.ones(2, device="meta"), "has no data.*to_empty"),
        (torch.nn.parameter.UninitializedParameter(), "is not initialised yet.*forward pass"),
        (torch.ones(2).as_subclass(DTensor), "is a DTensor"),
    ],
)
def test_what_float32_does_not_hold_is_refused_by_its_key(tensor: torch.Tensor, why: str) -> None:
    store = KVStore(Alone())
    with pytest.raises(ScenarioError, match=rf"init\('a'\): the tensor {why}"):
        store.init("a", tensor)
    store.init("b", torch.ones(2))
    with pytest.raises(ScenarioError, match=rf"push\('b'\): the tensor {why}"):
        store.push("b", tensor)


@for_each("dtype", [torch.int64, torch.uint8, torch.bfloat16, torch.float8_e4m3fn])
def test_what_float32_holds_travels(dtype: torch.dtype) -> None:
    store, tensor = KVStore(Alone()), torch.tensor([2.0, 16]).to(dtype)
    store.init("a", tensor)
    assert store.pull("a").tolist() == store.pushpull("a", tensor).tolist() == [2, 16]
