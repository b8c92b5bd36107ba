"""DiLoCo by torchft on scikit-learn's digits: each process is a replica group. It knows no testbed."""

import json
import os
import time
from datetime import timedelta

import torch
from sklearn.datasets import load_digits
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

STEPS, BATCH, HIDDEN = 10, 32, 256  # between two synchronisations; of a step; width of both hidden layers
STEP_S = 0.05  # as long as a step of a larger model would take
synchronisations = int(os.environ.get("SYNCHRONISATIONS", "24"))
min_replicas = int(os.environ["MIN_REPLICAS"])
group, groups = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
address = os.environ["MASTER_ADDR"]  # of this replica group

torch.set_num_threads(1)
torch.manual_seed(0)
digits = load_digits()
drawn = torch.randperm(len(digits.target))
images, labels = torch.tensor(digits.data, dtype=torch.float32)[drawn] / 16, torch.tensor(digits.target)[drawn]
own_images, own_labels = images[:1500][group::groups], labels[:1500][group::groups]
network = torch.nn.Sequential(
    torch.nn.Linear(64, HIDDEN),
    torch.nn.ReLU(),
    torch.nn.Linear(HIDDEN, HIDDEN),
    torch.nn.ReLU(),
    torch.nn.Linear(HIDDEN, 10),
)
inner = torch.optim.Adam(network.parameters(), lr=0.004)
outer = torch.optim.SGD(network.parameters(), lr=0.7, momentum=0.6, nesterov=True)


def load(state: dict) -> None:
    network.load_state_dict(state["network"])
    inner.load_state_dict(state["inner"])


store = TCPStore(address, 0, is_master=True, wait_for_workers=False)  # for the ranks of this replica group
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=20)),
    load_state_dict=load,
    state_dict=lambda: {"network": network.state_dict(), "inner": inner.state_dict()},
    min_replica_size=min_replicas,
    use_async_quorum=False,  # DiLoCo asks for it
    init_sync=False,  # all begin with the same seed
    replica_id=f"digits_{group}",
    store_addr=address,
    store_port=store.port,
    rank=0,
    world_size=1,
)

order = torch.Generator().manual_seed(group)
with DiLoCo(manager, [network], inner, outer, sync_every=STEPS):
    while (step := manager.current_step()) < synchronisations:
        began = time.monotonic()
        for made in range(STEPS):
            chosen = torch.randint(len(own_images), (BATCH,), generator=order)
            loss = torch.nn.functional.cross_entropy(network(own_images[chosen]), own_labels[chosen])
            inner.zero_grad()
            loss.backward()
            time.sleep(max(0.0, began + (made + 1) * STEP_S - time.monotonic()))
            inner.step()  # the last one synchronises
        seconds = time.monotonic() - began
        done = manager.current_step() - 1
        print(f"synchronisation {step}: {manager.num_participants()} replica groups, {seconds:.2f} s, then {done + 1}")
        if done < step:
            continue  # it failed, and is made again from where all were before
        print(json.dumps({"step": done, "loss": loss.item(), "samples": STEPS * BATCH, "seconds": seconds}))
        if group == 0:
            with torch.no_grad():
                accuracy = (network(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
            print(json.dumps({"step": done, "accuracy": accuracy}))
manager.shutdown(wait=False)
