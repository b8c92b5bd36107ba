"""``GeoOptimizer`` behaves as the torch optimizer that it wraps; the store of a script outside a run."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import lr_scheduler

from testbed.errors import ScenarioError
from testbed.kvstore import GeoOptimizer, KVStore, ScriptJob
from testbed.kvstore.optimizer import server_options
from testbed.kvstore.session import Alone
from tests.for_each import for_each

Make = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.05, lr_decay=0.01),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.1),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4),
    "cycle": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False),
    "sequential": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [3]
    ),
}
ALONE = ScriptJob()
LOCAL = ScriptJob(contribution="model", local_steps=3)
DELTA = ScriptJob(contribution="delta", local_steps=2)


class OneWorker(Alone):
    """A session outside a run, with the settings of a scenario."""

    def __init__(self, job: ScriptJob) -> None:
        super().__init__()
        self.job = job

    def ask(self, request: str, *arguments: Any) -> Any:
        if request == "exchange" and self.job.contribution != "gradient":
            tensors, *_ = arguments
            for key, tensor in tensors.items():
                self._values[key] = self._values[key] - tensor if self.job.contribution == "delta" else tensor.clone()
            return {key: self._values[key].clone() for key in tensors}, self.job.local_steps
        return super().ask(request, *arguments)


class Net(torch.nn.Sequential):
    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        super().__init__(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def groups(self) -> list[dict[str, Any]]:
        return [{"params": self[0].parameters()}, {"params": self[2].parameters(), "lr": 0.02}]


def wrap(optimizer: torch.optim.Optimizer, job: ScriptJob = ALONE, **options: Any) -> GeoOptimizer:
    return GeoOptimizer(optimizer, KVStore(OneWorker(job)), **options)


def batch(step: int) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(step)
    return torch.randn(16, 4, generator=chance), torch.randint(2, (16,), generator=chance)


def loss_of(net: Net, step: int) -> Tensor:
    samples, labels = batch(step)
    return torch.nn.functional.cross_entropy(net(samples), labels)


def train(net: Net, optimizer: torch.optim.Optimizer, steps: range, clip: float | None = None) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(net, step).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()


def assert_equal(one: Net, other: Net) -> None:
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def assert_close(one: Net, other: Net) -> None:
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], atol=1e-6, rtol=1e-5)


@pytest.fixture(params=OPTIMIZERS)
def make(request: pytest.FixtureRequest) -> Make:
    return OPTIMIZERS[request.param]


@for_each("job", [ALONE, LOCAL, DELTA])
@for_each("clip", [None, 0.01])
def test_one_worker_makes_the_steps_of_the_optimizer_itself(make: Make, clip: float | None, job: ScriptJob) -> None:
    plain, ours = Net(), Net()
    train(plain, make(plain.groups()), range(12), clip)
    train(ours, wrap(make(ours.groups()), job), range(12), clip)
    (assert_close if job is DELTA else assert_equal)(plain, ours)


def test_a_saved_state_continues_where_it_was(make: Make) -> None:
    whole, first = Net(), Net()
    train(whole, make(whole.groups()), range(10))
    optimizer = wrap(make(first.groups()))
    train(first, optimizer, range(5))
    assert optimizer.state_dict()["state"].keys() == {0, 1, 2, 3}
    assert optimizer.state_dict()["param_groups"] == optimizer.optimizer.state_dict()["param_groups"]
    stored = io.BytesIO()
    torch.save({"net": first.state_dict(), "optimizer": optimizer.state_dict()}, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=True)
    second = Net(seed=1)
    second.load_state_dict(loaded["net"])
    again = wrap(make(second.groups()))
    again.load_state_dict(loaded["optimizer"])
    train(second, again, range(5, 10))
    assert_equal(whole, second)


def test_edits_of_a_group_have_an_effect(make: Make) -> None:
    net = Net()
    optimizer = wrap(make(net.groups()))
    train(net, optimizer, range(2))
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group.update(lr=0.0, weight_decay=0.0)
    optimizer.load_state_dict(state)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    train(net, optimizer, range(2, 5))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    optimizer.param_groups[1]["lr"] = 0.5
    train(net, optimizer, range(5, 7))
    assert torch.equal(net[0].weight, before["0.weight"]) and not torch.equal(net[2].weight, before["2.weight"])


def test_a_group_added_later_is_refused(make: Make) -> None:
    net, late = Net(), torch.nn.Parameter(torch.ones(2))
    optimizer = wrap(make(net.groups()))
    with pytest.raises(ScenarioError, match="give the whole model before"):
        optimizer.add_param_group({"params": [late]})
    assert len(optimizer.param_groups) == 2


@for_each(
    ("options", "job", "cure"),
    [
        ({"buffers": "mean"}, ALONE, "write 'keep' or 'average'"),
        ({"buffers": "average"}, ALONE, "give it the model"),
        ({"buffers": "average", "model": Net()}, DELTA, "no mean over all workers; write buffers='keep'"),
        ({"buffers": "average", "model": Net()}, ScriptJob(at_server=True), "no mean over all workers"),
        ({"buffers": "average", "model": Net()}, ScriptJob(memory=True), "or codec: none"),
    ],
)
def test_buffers_that_have_no_mean_are_refused(options: dict[str, Any], job: ScriptJob, cure: str) -> None:
    with pytest.raises(ScenarioError, match=cure):
        wrap(torch.optim.SGD(Net().parameters(), lr=0.1), job, **options)


WIDE = torch.tensor([1.0, 1e39, 123456789.0, float("nan")], dtype=torch.float64)


def module(**tensors: Tensor) -> torch.nn.Module:
    """A module with these parameters, of which only floating-point ones are trained."""
    found = torch.nn.Module()
    for name, tensor in tensors.items():
        found.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))
    return found


@pytest.mark.parametrize("job", [ALONE, LOCAL, DELTA], ids=["gradient", "model", "delta"])
def test_trained_numbers_that_float32_does_not_hold_are_refused_and_frozen_ones_stay_exact(job: ScriptJob) -> None:
    net = module(wide=WIDE.clone(), count=torch.tensor([123456789, -(2**63)]), small=torch.ones(2))
    cure = r"is float64, .*model\.float\(\).*requires_grad=False"
    with pytest.raises(ScenarioError, match=f"parameter 0 of the optimizer's group 0 {cure}"):
        wrap(torch.optim.SGD(net.parameters(), lr=0.1), job)
    with pytest.raises(ScenarioError, match=f"parameter 'wide' {cure}"):
        wrap(torch.optim.SGD([net.small], lr=0.1), job, model=net)
    net.wide.requires_grad_(False)
    optimizer = wrap(torch.optim.SGD([net.small], lr=0.1), job, model=net)
    for _ in range(3):
        net.small.grad = torch.ones(2)
        optimizer.step()
    assert net.wide.equal(WIDE) or torch.equal(net.wide.view(torch.int64), WIDE.view(torch.int64))
    assert net.count.tolist() == [123456789, -(2**63)]
    assert net.small.tolist() == pytest.approx([0.7, 0.7])
    net.wide.requires_grad_(True)
    with pytest.raises(ScenarioError, match=f"parameter 'wide' {cure}"):
        optimizer.step()


class OneOfTwo(OneWorker):
    """A worker whose gradients and those of another sum up to zero from the second round on."""

    def __init__(self) -> None:
        super().__init__(ScriptJob(workers=2))
        self._round = 0

    def ask(self, request: str, *arguments: Any) -> Any:
        answer = super().ask(request, *arguments)
        if request != "exchange":
            return answer
        self._round += 1
        return {key: value * (self._round == 1) for key, value in answer[0].items()}, answer[1]


def test_workers_agree_on_a_total_of_zero_whatever_their_own_gradients_are(make: Make) -> None:
    """One has a gradient, one zeros, one none: all leave the parameters alone, and momentum and weight decay pause."""
    nets = [Net() for _ in range(3)]
    for net, own in zip(nets, (torch.ones_like, torch.zeros_like, lambda parameter: None), strict=True):
        optimizer = GeoOptimizer(make(net.parameters()), KVStore(OneOfTwo()))
        train(net, optimizer, range(1))
        after = deepcopy(net)
        for parameter in net.parameters():
            parameter.grad = own(parameter)
        optimizer.step()
        assert_equal(net, after)
    assert_equal(nets[0], nets[1])
    assert_equal(nets[0], nets[2])


@for_each("scheduler", SCHEDULERS)
def test_learning_rates_follow_their_scheduler(make: Make, scheduler: str) -> None:
    plain, ours = Net(), Net()
    rates: list[list[float]] = []
    for net, optimizer in ((plain, make(plain.groups())), (ours, wrap(make(ours.groups())))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="The epoch parameter in")  # of torch's own SequentialLR
            schedule = SCHEDULERS[scheduler](optimizer)
            seen = []
            for step in range(8):
                train(net, optimizer, range(step, step + 1))
                schedule.step()
                seen += [group["lr"] for group in optimizer.param_groups]
        rates.append(seen)
    assert rates[0] == rates[1] and len(set(rates[0])) > 4
    assert_equal(plain, ours)


@for_each("job", [ALONE, LOCAL])
@for_each("unscale", [False, True])
def test_mixed_precision_scales_gradients_back(make: Make, unscale: bool, job: ScriptJob) -> None:
    plain, ours = Net(), Net()
    train(plain, make(plain.groups()), range(6))
    optimizer, scaler = wrap(make(ours.groups()), job), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(loss_of(ours, step)).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert_close(plain, ours)


def test_an_optimizer_on_the_servers_cannot_be_changed() -> None:
    net = Net()
    optimizer = wrap(torch.optim.SGD(net.parameters(), lr=0.1), ScriptJob(at_server=True))
    train(net, optimizer, range(1))
    optimizer.param_groups[0]["lr"] = 0.01
    with pytest.raises(ScenarioError, match="runs on the servers"):
        train(net, optimizer, range(1, 2))


@for_each(("decoupled", "kind"), [(False, "adam"), (True, "adamw")])
def test_adam_with_decoupled_weight_decay_is_adamw_on_the_servers(decoupled: bool, kind: str) -> None:
    adam = torch.optim.Adam(Net().parameters(), lr=0.1, weight_decay=0.1, decoupled_weight_decay=decoupled)
    assert server_options(adam) == (kind, {**server_options(adam)[1], "weight_decay": 0.1})


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
