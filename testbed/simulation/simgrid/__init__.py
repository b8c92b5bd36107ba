"""Validation against SimGrid (Casanova et al., JPDC 2014), where that is installed; see ``__main__``."""
