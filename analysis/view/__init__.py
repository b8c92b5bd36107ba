"""A page that shows a run in progress and plays back a finished one: its data, its files and its server."""
