"""Jobs that were traced elsewhere: what each rank computed, sent and received, and what it waited for.

``model`` is a trace in memory. ``reading`` finds the files of a job and reads them, in Chakra's format (``chakra``,
``schema``) or PyTorch's own (``pytorch``); ``order`` says what can be done when, ``checks`` refuses what could not be
played, ``writing`` makes files.
"""
