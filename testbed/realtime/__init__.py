"""The real world: the engine's roles as processes that talk over TCP.

From the bytes up: ``frames`` (what is on the wire), ``auth`` (who may connect), ``send_queue`` and ``connection`` (one
socket), ``network`` (all of a node's), ``heartbeat`` (who is alive), ``processor`` (computation), ``world`` (all of it
as a ``World``), ``node`` (one from start to end), ``child``, ``watch`` and ``fleet`` (all of a run as processes).
"""
