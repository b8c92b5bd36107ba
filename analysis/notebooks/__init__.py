"""Notebooks as plain Python in the percent format: for Jupytext, VS Code or PyCharm, or to be run as they are.

Each takes its runs from ``notebook_runs`` and makes them, simulated and small, where they are not there yet.
"""
