"""A page that shows a run while it happens and plays it back: its data, its files, and who serves them."""
