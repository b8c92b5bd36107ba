"""The store of a script outside a run."""

from __future__ import annotations

import torch

from testbed.kvstore import KVStore
from testbed.kvstore.session import Alone


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
