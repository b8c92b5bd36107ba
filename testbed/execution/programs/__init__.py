"""Programs of a user as the nodes of a run (``workload: {command: …}``): started, measured, watched and ended.

``launch`` makes commands and variables of the processes, ``supervisor`` runs them, each below a process that kills
everything it leaves (``testbed.processes.first``), and ``metrics`` reads what they report. The network, its links and
their counters are those of every other run.
"""
