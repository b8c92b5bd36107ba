"""Processes that a process of this machine starts: nodes, points of sweeps, hosts, helpers, agents and users' programs.

``child`` starts, watches and ends each of them. ``first`` is the process around a user's program, and the first process
of a sandbox.
"""
