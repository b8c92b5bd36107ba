"""One run, from a plan to a run directory, on any back end."""
