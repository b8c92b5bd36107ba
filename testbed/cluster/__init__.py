"""Runs on several machines: an agent on each machine starts and watches the nodes there, on behalf of one driver.

``connection`` joins a Ray cluster, for these runs and for sweeps. ``machines`` decides which node runs where,
``control`` is the connection between driver and agents, ``clocks`` relates the machines' clocks. ``agents`` starts the
agents of a run, ``agent_connections`` talks to them, ``processes`` are their nodes, as ``testbed.realtime.fleet`` wants
them. ``starting`` starts agents as processes of this machine, ``ray_agents`` on the machines of a Ray cluster.
"""
