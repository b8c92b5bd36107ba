"""The files of a run directory, and how they are read again."""

COMPLETED = ("done", "reduced", "diverged")
FINISHED = (*COMPLETED, "failed", "interrupted")  # states of runs; see ``rundir``
