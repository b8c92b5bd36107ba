"""Programs of a user as the nodes of a run (``workload: {command: …}``): started, measured, watched and ended.

``launch`` says what is started with which variables, ``supervisor`` runs them all, each below a process that lets
nothing outlive it (``testbed.processes.first``), and ``metrics`` reads what they report. The network, its links and
their counters are those of every other run.
"""
