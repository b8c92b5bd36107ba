"""Runs and sweeps on several machines, which Ray joins to a cluster: the driver's side.

``connection`` joins the cluster, ``machines`` places nodes, ``agent_process`` and ``ray_agents`` start agents,
``agents`` are all those of a run, ``processes`` are their nodes, as ``testbed.realtime.fleet`` wants them. ``clocks``
relates the machines' clocks, ``links`` measures their network, ``files`` brings events and checkpoints home.
"""
