"""The learning rate as a pure function of the number of updates; free of torch."""

from __future__ import annotations

import math

from testbed.training.options.optimizers import OptimizerOptions


def rate_at(options: OptimizerOptions, update: int) -> float:
    """Return the learning rate of update number ``update`` (from 0) of a key.

    Warm-up rises linearly and reaches the full rate at update ``warmup - 1`` (Goyal et al., 2017). After it:
    ``step`` multiplies by ``decay`` every ``period`` updates; ``cosine`` falls to ``decay`` of the rate within
    ``period`` updates and stays there (Loshchilov and Hutter, 2017, without restarts); ``inverse_sqrt`` falls with the
    root of all updates, warm-up included (Vaswani et al., 2017).
    """
    done = update + 1
    if done <= options.warmup:
        return options.learning_rate * done / options.warmup
    return options.learning_rate * _factor(options, update - options.warmup, done)


def _factor(options: OptimizerOptions, since_warmup: int, done: int) -> float:
    if options.schedule == "step":
        return float(options.decay ** (since_warmup // options.period))
    if options.schedule == "cosine":
        part = min(since_warmup / options.period, 1.0)
        return options.decay + (1 - options.decay) * (1 + math.cos(math.pi * part)) / 2
    if options.schedule == "inverse_sqrt":
        return math.sqrt(max(options.warmup, 1) / done)
    assert options.schedule == "constant", options.schedule
    return 1.0
