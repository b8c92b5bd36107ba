"""The short contracts of shards, data sets, splits, topology readers and trace formats.

Such a technique is a function of options, seed and file: it must work, and give the same result twice. Trainings test
the rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.testing.order import cases, covers_once
from testbed.testing.requirement import Broken, require, requirement
from testbed.testing.subject import Subject
from testbed.training.datasets import Dataset, digest_of, load_anew
from testbed.training.splits import shares_of
from topologies.readers import READERS

_SEED = 5
_SPLITS = ((40, 3, 4), (200, 10, 12), (97, 5, 1))  # samples, classes and workers
_SCENARIO = """
version: 1
name: check
seed: 1
run: {{on: simulate}}
topology: {topology}
training: {{model: mlp, data: digits, rounds: 1, evaluate_every: 1}}
"""
_GRAPH = "{{use: {file}, reader: '{kind}', rate: 1 Gbit/s, delay: 5 ms, external: true}}"
_LINK = """
  data_centers: [{{name: hub, central: true}}, {{name: east}}]
  links: [{{between: [hub, east], rate: 10 Mbit/s, delay: 5 ms, {what}_trace: {{file: {file}, format: '{kind}'}}}}]
"""


@requirement("begin each slice where the one before ends")
def every_element_is_placed_once(subject: Subject) -> None:
    """The slices cover every element of every key once, in order of position."""
    for sizes, servers in cases():
        covers_once(subject.entry(subject.options).slices(sizes, servers), sizes, servers)


@requirement("deal every index out at most once, as int64 tensors [samples]")
def no_sample_is_dealt_twice(subject: Subject) -> None:
    """Each worker gets a share, as int64 indices; no sample is in two shares."""
    for samples, classes, workers in _SPLITS:
        shares = _split(subject, samples, classes, workers)
        if not shares:
            continue
        found = [(share.dtype, share.dim()) for share in shares]
        require(found == [(torch.int64, 1)] * workers, f"for {workers} workers shares of {found[:3]}…")
        used = torch.cat(shares).tolist()
        dealt = len(set(used)) == len(used) and set(used) <= set(range(samples))
        require(dealt, f"{len(used)} indices, {len(set(used))} of them different, of {samples} samples")


@requirement("correct parse, or give a valid --file, with --set for settings that it needs")
def a_scenario_can_use_it(subject: Subject) -> None:
    """A scenario can use the network or the trace in the file, which is the class' sample or --file."""
    if subject.values:
        return
    assert subject.file is not None
    is_graph = subject.axis is READERS
    what = "" if is_graph else subject.options.what
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as name:
        folder = Path(name)
        file = subject.file.name if Path(subject.file.name).suffix else f"{subject.file.name}.txt"
        (folder / file).write_text(subject.file.text, encoding="utf-8")
        topology = (_GRAPH if is_graph else _LINK).format(file=file, kind=subject.kind, what=what)
        try:
            plan = build_plan(loads(_SCENARIO.format(topology=topology), "check.yaml", folder=folder))
        except ScenarioError as error:
            raise Broken(str(error)) from error
    follow = plan.network.links and (is_graph or getattr(plan.network.links[0], f"{what}_trace"))
    require(follow, "no link follows the file", "return what the file holds")


@requirement("draw from the seed alone, and keep no state in the class, the module, or torch's own random numbers")
def made_twice_it_is_the_same(subject: Subject) -> None:
    """The result depends on options, seed and file alone, and torch's own random numbers stay as they were."""
    made = []
    for number in (1, 2):
        torch.manual_seed(number)
        before = torch.random.get_rng_state()
        made.append(_made(subject, backwards=number == 2))
        require(torch.equal(before, torch.random.get_rng_state()), "torch's own random numbers are drawn from")
    require(made[0] == made[1], "something else the second time")


def _made(subject: Subject, backwards: bool) -> object:
    """Return the technique's results for comparison with ``==``. One shard object cuts all cases, in either order."""
    match subject.axis_name:
        case "shard":
            shard = subject.entry(subject.options)
            return {case: shard.slices(*case) for case in (reversed(cases()) if backwards else cases())}
        case "data":
            data = load_anew(subject.kind, dict(subject.values), _SEED)
            require(isinstance(data, Dataset), f"load returns {type(data).__name__}", "return a Dataset")
            return digest_of(data.train_inputs, data.train_labels), digest_of(data.test_inputs, data.test_labels)
        case "split":
            return [[share.tolist() for share in _split(subject, *case)] for case in _SPLITS]
        case "topology":
            return subject.entry.parse(subject.file)
        case _:
            return subject.entry.parse(subject.file, subject.options)


def _split(subject: Subject, samples: int, classes: int, workers: int) -> tuple[Tensor, ...]:
    """Return the shares; empty if the split refuses this case."""
    labels = torch.arange(samples) * 7 % classes
    try:
        return shares_of(labels, subject.kind, dict(subject.values), _SEED, workers)
    except ScenarioError:
        return ()
