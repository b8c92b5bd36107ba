"""What a run leaves behind, and how it is read again."""

COMPLETED = ("done", "degraded", "diverged")
FINISHED = (*COMPLETED, "failed", "interrupted")  # states of runs; see ``rundir``
