"""Overlays: relays beside ``KVWorker`` and ``Server``, which need not know of them.

Contributions (up) and values (down) of a chunk of keys travel between the members of a group and its root, the server:

* A *tree* is known to every node. A member sends MERGE to its parent when its own contribution and those of its whole
  subtree are here, and passes SPREAD on to its children as it arrives.
* A *schedule* (TSEngine) is known to the root alone. A member that has something to send says so (ASK) and sends it
  where the root tells it (TELL). ASK also reports the transfer that made it ready, with its measured throughput.

Where a run goes on without nodes that are lost, the root alone decides who relays. When a member is lost, it tells the
others (RESEND), and rounds under way end as a star: each sends its own contribution directly, which counts unless it
has come in a sum before. With a round's values the root says who travels together in the next one: all that it sends
them to. So nodes need not hear of a loss in the same order, or at the same time.
"""
