"""A store with GeoMX's names, for GeoMX scripts: ``kv = create("dist_sync")``. See docs/coming_from_geomx.md.

The scenario takes the place of GeoMX's environment variables. A call that contradicts the scenario is refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeGuard

import torch
from torch import Tensor

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.kvstore.checkpoint import from_bytes, to_bytes
from testbed.kvstore.optimizer import server_options
from testbed.kvstore.session import NamedOptions
from testbed.kvstore.store import (
    NO_CLIP_NORM,
    RANK_IN_SITE,
    SITE_WORKERS,
    Handle,
    KVStore,
    check_options,
    connect,
    what_to_push,
)
from testbed.state import State
from testbed.training.optimizers import KeyOptimizer
from testbed.training.options import OPTIMIZERS

_ONE_MACHINE = ("local", "device", "nccl")

Keys = Hashable | Sequence[Hashable]
Tensors = Tensor | Sequence[Tensor]


def create(name: str = "dist_sync") -> GeoMXStore:
    """Return this worker's store by GeoMX's name for it.

    Names with ``dist`` and ``async`` need a scenario in which data centres do not wait for each other; other names with
    ``dist`` need one in which they do. Further words in a name (``device``, ``tree``) concern the GPUs of one machine
    and have no effect. Raise ``ScenarioError`` if the name does not fit the scenario.
    """
    if not isinstance(name, str) or ("dist" not in name and name not in _ONE_MACHINE):
        raise ScenarioError(f"create({name!r}): GeoMX has no such store; write create('dist_sync') or 'dist_async'")
    store = connect()
    job = store.job
    alone = store.job.workers == 1
    if "dist" not in name:
        if not alone:
            raise ScenarioError(
                f"create({name!r}) is for one machine, but the scenario has {job.workers} workers; "
                "write create('dist_sync')"
            )
    elif not alone and ("async" in name) != job.at_server:
        says = f"the scenario says 'sync: {job.sync}', in which data centres"
        if job.at_server:
            raise ScenarioError(f"create({name!r}): {says} do not wait for each other; write create('dist_async')")
        raise ScenarioError(
            f"create({name!r}): {says} wait for each other; write create('dist_sync'), or a sync without such waits"
        )
    return GeoMXStore(store, name)


class GeoMXStore:
    """A ``KVStore`` under GeoMX's names. ``store`` is the ``KVStore``, for ``GeoOptimizer`` and for other methods.

    With ``dist_sync``, the optimizer of ``set_optimizer`` runs in every worker, on the sums of all pushes, and each
    worker keeps its state. With ``dist_async``, the optimizer runs on the servers.
    """

    def __init__(self, store: KVStore, name: str) -> None:
        self.store = store
        self.type = name
        self._optimizer: NamedOptions | None = None
        self._states: dict[Hashable, KeyOptimizer] = {}
        self._keys: dict[Hashable, torch.Size] = {}
        self._pushed: dict[Hashable, list[Handle]] = {}  # the optimizer of this worker has not applied their sums yet
        self._pulled_to: dict[Hashable, Tensor] = {}  # the script's own tensors, which hold the model

    # ---- places -------------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This worker's number, from 0, in its data centre (GeoMX: party); see also ``rank_of_all``."""
        self.store.places.add(RANK_IN_SITE)
        return self.store.job.site_rank

    @property
    def num_workers(self) -> int:
        """The number of workers in this data centre; see also ``num_all_workers``."""
        self.store.places.add(SITE_WORKERS)
        return self.store.job.site_workers

    @property
    def rank_of_all(self) -> int:
        """This worker's number, from 0, among the workers of all data centres."""
        return self.store.rank

    @property
    def num_all_workers(self) -> int:
        """The number of workers in all data centres."""
        return self.store.num_workers

    @property
    def weight(self) -> float:
        """The factor by which this worker multiplies a model, or its change, before a push, as servers only add."""
        return self.store.weight

    @property
    def first_round(self) -> int:
        """The round with which this worker begins: 0, or a later one if its script has joined a run in progress."""
        return self.store.first_round

    @property
    def is_master_worker(self) -> bool:
        """Whether all workers start with this worker's first values. It trains like the others."""
        return self.store.job.rank == 0

    # ---- settings, before the first push ------------------------------------------------------------------------

    def set_optimizer(self, optimizer: str | torch.optim.Optimizer, **options: Any) -> None:
        """Use pushes as gradients: this optimizer applies their sums. Every worker makes the same call.

        ``optimizer`` is a torch optimizer (SGD, Adam, AdamW), or a kind of optimizer of the scenario with its
        ``options``.
        """
        if self.store.job.contribution != "gradient":
            raise ScenarioError(
                f"set_optimizer: with the scenario's 'sync: {self.store.job.sync}' models travel, not gradients; "
                f"step a torch optimizer in the script; {what_to_push(self.store.job)}"
            )
        kind, chosen = (optimizer, options) if isinstance(optimizer, str) else server_options(optimizer)
        if self.store.job.at_server:
            self.store.set_optimizer(kind, of_mean=False, **chosen)
            return
        if chosen.get("clip_norm"):
            raise ScenarioError(f"set_optimizer({kind!r}): {NO_CLIP_NORM}")
        check_options("set_optimizer", OPTIMIZERS, kind, chosen)
        self._optimizer = (kind, chosen)
        # checkpoints hold the workers' values and moments, as servers only have sums
        state = SimpleNamespace(state_dict=self._states_by_number, load_state_dict=self._load_states)
        self.store.kept["set_optimizer"] = state

    def set_gradient_compression(self, compression: Mapping[str, Any]) -> None:
        """Compress messages over the WAN: ``{"type": "2bit" | "bsc", "threshold": x}``. Every worker makes the call."""
        names = {entry.geomx[0]: (kind, entry.geomx[1]) for kind, entry in CODECS.items() if "geomx" in vars(entry)}
        what = {"type": "", **compression}
        if what["type"] not in names or set(what) - {"type", "threshold"}:
            raise ScenarioError(
                f"set_gradient_compression({dict(compression)}): write {{'type': …, 'threshold': …}} with one of "
                f"{', '.join(names)} as the type; other codecs are in the scenario ('codec')"
            )
        kind, option = names[what["type"]]
        options = {option: what["threshold"]} if "threshold" in what else {}
        if CODECS[kind].pull_on(CODECS.options(kind, options), tier=2) != "dense" and not self.store.job.at_server:
            options["pull"] = "sparse-sum"  # servers send sums of gradients
        self.store.set_compression(kind, **options)

    # ---- values -------------------------------------------------------------------------------------------------

    def init(self, key: Keys, value: Tensors) -> None:
        """Declare keys, before the first push or pull. All workers start with the master worker's values."""
        for each, tensor in _pairs("init", key, value):
            self.store.init(each, tensor)
            self._keys[each] = tensor.shape

    def push(self, key: Keys, value: Tensors, priority: int = 0) -> None:
        """Send contributions without waiting. Several tensors for one key are summed first."""
        for each, tensor in _pairs("push", key, value, several=True):
            if self._optimizer is not None and self.store.job.continues:
                self._state(each)  # a script that joins takes the state over from another worker before it contributes
            if each in self._pulled_to and tensor.data_ptr() == self._pulled_to[each].data_ptr():
                self.store.refuse_a_whole_model(each)
            handle = self.store.push(each, tensor, priority)
            if self._optimizer is not None:
                self._pushed.setdefault(each, []).append(handle)

    def pull(self, key: Keys, out: Tensors | None = None, priority: int = 0) -> Tensor | list[Tensor]:
        """Return the values after this worker's last pushes, and copy them to ``out``. ``priority`` has no effect.

        With one key, its value is copied to every tensor of ``out``, such as copies on several devices.
        """
        keys, one = (list(key), False) if _several(key) else ([key], True)
        targets = [] if out is None else [out] if isinstance(out, Tensor) else list(out)
        if targets and not one and len(targets) != len(keys):
            raise ScenarioError(f"pull: {len(keys)} keys take as many tensors as 'out'")
        values = [self._value(each) for each in keys]
        for target, value in zip(targets, values * len(targets) if one else values, strict=False):
            with torch.no_grad():
                target.copy_(value.view_as(target))
        self._pulled_to.update(zip(keys, targets, strict=False))
        return values[0] if one else values

    def pushpull(
        self, key: Keys, value: Tensors, out: Tensors | None = None, priority: int = 0
    ) -> Tensor | list[Tensor]:
        """Push, and return the values after it."""
        self.push(key, value, priority)
        return self.pull(key, out, priority)

    def finish(self) -> None:
        """End the training: see ``KVStore.finish``."""
        self.store.finish()

    def barrier(self) -> None:
        """Wait for all workers."""
        self.store.barrier()

    def _value(self, key: Hashable) -> Tensor:
        if self._optimizer is None:
            return self.store.pull(key)
        state = self._state(key)
        for handle in self._pushed.pop(key, ()):
            state.step(handle.wait().reshape(-1))
        return state.value.clone().view(self._keys[key])

    def _state(self, key: Hashable) -> KeyOptimizer:
        if not self._states:
            assert self._optimizer is not None
            for each, first in zip(self._keys, self.store.first_values(), strict=True):
                self._states[each] = KeyOptimizer(*self._optimizer, first)
            self.store.holds(
                lambda: [state.value.clone() for state in self._states.values()],
                lambda: to_bytes(self._states_by_number()),
            )
            if self.store.job.continues and (taken := self.store.take_over()) is not None:
                content = from_bytes(taken[1])
                for number, state in enumerate(self._states.values()):
                    state.load_state(content[number])
        if key not in self._states:
            raise ScenarioError(f"key {key!r} is not known; call init({key!r}, tensor) first")
        return self._states[key]

    # ---- the optimizer's state ----------------------------------------------------------------------------------

    def _states_by_number(self) -> dict[int, State]:
        return {number: state.state() for number, state in enumerate(self._states.values())}

    def _load_states(self, content: Mapping[int, State]) -> None:
        for number, key in enumerate(self._keys if content else ()):  # empty content: nothing had been pushed yet
            self._state(key).load_state(content[number])

    def save_optimizer_states(self, fname: str | Path) -> None:
        """Write the optimizer's state and the values of all keys to a file; all workers write the same content."""
        self._refuse_state("save_optimizer_states")
        torch.save({number: self._state(key).state() for number, key in enumerate(self._keys)}, fname)

    def load_optimizer_states(self, fname: str | Path) -> None:
        """Continue from a saved state. Every worker makes the same call, after ``set_optimizer`` and ``init``."""
        self._refuse_state("load_optimizer_states")
        loaded = torch.load(fname, weights_only=True)
        shapes = [int(state["value"].numel()) for state in loaded.values()]
        if shapes != [shape.numel() for shape in self._keys.values()]:
            raise ScenarioError(f"load_optimizer_states({str(fname)!r}): the file has other keys than this script")
        self._load_states(loaded)

    def _refuse_state(self, call: str) -> None:
        if self.store.job.at_server:
            raise ScenarioError(
                f"{call}: with 'sync: {self.store.job.sync}' the optimizer's state is on the servers; write a sync in "
                "which all wait, and create('dist_sync')"
            )
        if self._optimizer is None:
            raise ScenarioError(f"{call}: there is no optimizer; call set_optimizer first, or save the script's own")


def _several(key: Keys) -> TypeGuard[Sequence[Hashable]]:
    """Return whether ``key`` is a list of keys; a text is one key."""
    return isinstance(key, Sequence) and not isinstance(key, str)


def _pairs(call: str, key: Keys, value: Tensors, several: bool = False) -> list[tuple[Hashable, Tensor]]:
    """Return pairs of key and tensor. With ``several``, a list of tensors for one key is summed."""
    if not _several(key):
        if isinstance(value, Tensor):
            return [(key, value)]
        if several and len(value):
            return [(key, torch.stack([each.detach().to("cpu") for each in value]).sum(0))]
        raise ScenarioError(f"{call}({key!r}): one key takes {'at least ' if several else ''}one tensor")
    tensors = list(value)
    if isinstance(value, Tensor) or len(tensors) != len(key):
        raise ScenarioError(f"{call}: {len(key)} keys take as many tensors")
    return list(zip(key, tensors, strict=True))
