"""Cases for a process of their own, which ``test_stand_in`` starts: torch keeps a device until its process ends."""
