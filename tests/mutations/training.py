"""Optimizers, splits, batches, models, loading of data."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit, instead
from tests.mutations.policy import in_place_of

OPTIMIZERS, SPLITS = ("tests/training/test_optimizers.py",), ("tests/training/test_splits.py",)
MAKERS = "testbed.training.optimizers.key:_MAKERS"
MUTATIONS: dict[str, Mutation] = {
    "a layer without parameters is a segment": Mutation(
        "testbed.training.models:_joined", lambda before: lambda blocks: blocks, ("tests/training/test_models.py",)
    ),
    "a layer that works in place is a segment": Mutation(
        "testbed.training.models:_begins_in_place", always(False), ("tests/training/test_models.py",)
    ),
    "scales of normalisations begin with zeros": Mutation(
        "testbed.training.models:initialise",
        edit('elif "bias" in name.rpartition(".")[2]:', "else:"),
        ("tests/training/test_models.py",),
    ),
    "a parameter without a gradient is left out": Mutation(
        "testbed.training.trainer:complete",
        edit("if len(found) < len(gradients):", "if False:"),
        ("tests/training/test_models.py",),
    ),
    "LARS does not adapt": Mutation("testbed.training.optimizers.key:_ratio", always(1.0), OPTIMIZERS),
    "DC-ASGD compensates from the first value": Mutation(
        "testbed.training.optimizers.compensation:Compensation.pulled", always(None), OPTIMIZERS
    ),
    "learning rates follow no schedule": Mutation(
        "testbed.training.optimizers.key:_factor", always(1.0), ("tests/training/test_schedules.py",)
    ),
    "gradients are not clipped": Mutation(
        "testbed.training.optimizers.key:KeyOptimizer._clipped", edit("if clip > 0", "if False"), OPTIMIZERS
    ),
    "every epoch has the same order": Mutation(
        "testbed.training.batches:Batches._order", edit("self._rank, epoch).", "self._rank, 0)."), SPLITS
    ),
    "iid is contiguous": Mutation("testbed.training.splits:RULES", in_place_of("iid", "contiguous"), SPLITS),
    "by_class is iid": Mutation("testbed.training.splits:RULES", in_place_of("by_class", "iid"), SPLITS),
    "dirichlet is iid": Mutation("testbed.training.splits:RULES", in_place_of("dirichlet", "iid"), SPLITS),
    "by_count is iid": Mutation("testbed.training.splits:RULES", in_place_of("by_count", "iid"), SPLITS),
    "a data set whose files have changed stays as it was": Mutation(
        "testbed.training.datasets:_state_of_files", always(()), ("tests/training/test_datasets.py",)
    ),
    "a split that has been edited deals as before": Mutation(
        "testbed.training.splits:shares_of", edit("SPLITS[kind].__module__", "''"), ("tests/training/test_datasets.py",)
    ),
    "the sample store is infinitely fast": Mutation(
        "testbed.engine.loading:SampleStore.fetch",
        edit("/ self._rate_bps", "* 0"),
        ("tests/engine/test_loading.py",),
    ),
    "samples that are on their way are loaded again": Mutation(
        "testbed.engine.loading:Loader._samples",
        edit("if number in self._pending}", "if False}"),
        ("tests/engine/test_loading.py",),
    ),
    "batches that are loaded are all of the first epoch": Mutation(
        "testbed.engine.loading:LoadingTrainer._batch",
        edit("self._batches.epoch(step)", "0"),
        ("tests/engine/test_loading.py",),
    ),
    "the cache keeps everything": Mutation(
        "testbed.training.cache:Level.put",
        edit("size_bytes <= self._free_bytes", "True"),
        ("tests/engine/test_loading.py",),
    ),
    "a worker without a gradient makes no step where the total is zero, and others do": Mutation(
        "testbed.kvstore.optimizer:GeoOptimizer._mean",
        edit("if not total.any()", "if parameter.grad is None and not total.any()"),
        ("tests/kvstore/test_optimizer.py",),
    ),
    "Adam's decoupled weight decay is coupled on the servers": Mutation(
        "testbed.kvstore.optimizer:server_options",
        edit('.get("decoupled_weight_decay")', '.get("weight_decay_that_is_decoupled")'),
        ("tests/kvstore/test_optimizer.py",),
    ),
    "SGD is Nesterov's": Mutation(MAKERS, in_place_of("sgd", "nesterov"), OPTIMIZERS),
    "Adam is SGD": Mutation(MAKERS, in_place_of("adam", "sgd"), OPTIMIZERS),
    "AdamW is LARS": Mutation(MAKERS, in_place_of("adamw", "lars"), OPTIMIZERS),
    "initial weights do not depend on the seed": Mutation(
        "testbed.training.models:seed_for", instead(lambda *parts: 1), ("tests/training/test_models.py",)
    ),
}
