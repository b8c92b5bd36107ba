"""The key-value store for users' own training code.

Two lines make an ordinary PyTorch loop geo-distributed: connect, and wrap the optimizer.

    store = connect()                                          # this worker: store.rank of store.num_workers
    optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store)

A scenario names the script (``workload: {script: my_train.py}``) and runs it on every back end, one copy per worker.
Started by plain ``python my_train.py``, the script is the only worker. Call everything here from the script's thread.
``create("dist_sync")`` returns a store with GeoMX's names.
"""

from testbed.kvstore.geomx import GeoMXStore, create
from testbed.kvstore.optimizer import GeoOptimizer
from testbed.kvstore.session import ScriptJob, enter
from testbed.kvstore.store import Handle, KVStore, connect

__all__ = ["GeoMXStore", "GeoOptimizer", "Handle", "KVStore", "ScriptJob", "connect", "create", "enter"]
