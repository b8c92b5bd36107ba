"""Traces of jobs that ran elsewhere: the work and messages of each rank, and which of them waited for which.

``model`` is a trace in memory. ``reading`` finds the files of a job and reads them, in Chakra's format (``chakra``,
``schema``) or in PyTorch's own (``pytorch``). ``order`` finds an order in which nodes can be done, ``checks`` refuses
traces that could not be played to their end, and ``writing`` writes files.
"""
