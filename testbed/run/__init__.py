"""One run, from a Plan to a run directory full of events, on any back end."""
