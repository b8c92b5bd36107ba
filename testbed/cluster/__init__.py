"""Runs and sweeps on several machines, which Ray joins to a cluster: the driver's side.

``connection`` joins the cluster, ``machines`` places nodes, ``agent_process`` and ``ray_agents`` start agents,
``agents`` manages all agents of a run, and ``processes`` offers their nodes to ``testbed.realtime.fleet``. ``clocks``
relates the machines' clocks, ``links`` measures their network, ``files`` brings events and checkpoints to the driver.
"""
