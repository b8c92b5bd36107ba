"""Overlays: relays beside ``KVWorker`` and ``Server``, which need not know of them.

Contributions (up) and values (down) of a chunk of keys travel between the members of a group and its root, the server:

* A *tree* is known to every node. A member sends MERGE to its parent when its own contribution and those of its whole
  subtree are here, and passes SPREAD on to its children as it arrives.
* A *schedule* (TSEngine) is known to the root alone. A member that has something to send says so (ASK) and sends it
  where the root tells it (TELL). ASK also reports the transfer that made it ready, with its measured throughput.

Where a run goes on without nodes that are lost, all that is under way ends when the membership changes
(``engine.peers``). The round under way is then made again as a star: each sends its own contribution directly, and is
answered directly, as others may have their answer already. From the next round on, those who take part relay. So does a
member that joins, from its second round on.
"""
