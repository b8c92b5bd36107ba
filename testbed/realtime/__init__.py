"""The real world: the engine's roles as processes that communicate over TCP and UDP.

From the bytes up: ``frames`` (bytes on the wire), ``tls``, ``auth`` (the handshake), ``send_queue`` and ``connection``
(one socket), ``connecting`` (how connections come about), ``udp_wire`` and ``udp`` (best effort),
``heartbeat`` (failure detection), ``network`` (all connections of a node), ``processor`` (computation),
``world`` (all of these as a ``World``), ``node`` (one node from start to end), ``child`` and ``node_processes`` (nodes
as forked processes), ``faults``, ``fleet_status`` and ``fleet`` (a run of them).
"""
