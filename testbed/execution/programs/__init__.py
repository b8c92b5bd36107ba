"""Programs of a user as the nodes of a run (``workload: {command: …}``): started, measured, watched and ended.

``launch`` says what is started with which variables, ``guard`` is the process around each program, ``supervisor`` runs
them all, ``metrics`` reads what they report. The network, its links and their counters are those of every other run.
"""
