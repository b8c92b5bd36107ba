"""Data as a worker needs it: a data set, its share of the samples, and the batches over that share."""

from testbed.training.batches import Batches
from testbed.training.datasets import Dataset, load_dataset
from testbed.training.splits import share_of, shares_of

__all__ = ["Batches", "Dataset", "load_dataset", "share_of", "shares_of"]
