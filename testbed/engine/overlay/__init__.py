"""Overlays: relays beside ``KVWorker`` and ``Server``, which need not know of them.

Contributions (up) and values (down) of a chunk of keys travel between the members of a group and its root, the server:

* A *tree* is known to every node. A member sends MERGE to its parent once it has its own contribution and those of its
  whole subtree. It passes a SPREAD on to its children when it arrives.
* A *schedule* (TSEngine) is known to the root alone. A member that has something to send asks the root (ASK), and sends
  to the node that the root names (TELL). ASK also reports the transfer that made the member ready, with its throughput.

If the run continues without lost nodes, a change of the membership (``engine.peers``) ends all transfers under way. The
current round is then repeated as a star: each member sends its own contribution directly to the root and gets a direct
answer, because other members may have their answers already. From the next round on, the present members relay again. A
member that joins relays from its second round on.
"""
