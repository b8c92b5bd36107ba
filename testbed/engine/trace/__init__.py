"""Plays a job's trace: ``roles`` is one rank's role, ``player`` its queues, ``collectives`` its operations."""
