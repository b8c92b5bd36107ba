"""The store of a script outside a run."""

from __future__ import annotations

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.kvstore import GeoOptimizer, KVStore
from testbed.kvstore.session import Alone


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


def test_what_a_push_returns_is_the_callers_to_change() -> None:
    store = KVStore(Alone())
    store.init("a", torch.zeros(3))
    mean = store.pushpull("a", torch.ones(3))
    mean /= 2
    assert store.pull("a").tolist() == [1, 1, 1]
    handle = store.push("a", torch.full((3,), 4.0))
    handle.wait().zero_()
    store.pull("a").zero_()
    assert handle.wait().tolist() == store.pull("a").tolist() == [4, 4, 4]


def test_complex_numbers_are_refused() -> None:
    """Their imaginary parts would be lost without a word."""
    store, weight = KVStore(Alone()), torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ScenarioError, match=r"init\('a'\): complex numbers"):
        store.init("a", weight)
    with pytest.raises(ScenarioError, match=r"init\(0\): complex numbers"):
        GeoOptimizer(torch.optim.SGD([weight], lr=0.1), KVStore(Alone()))
    store.init("b", torch.ones(2))
    with pytest.raises(ScenarioError, match=r"push\('b'\): complex numbers"):
        store.push("b", weight)
