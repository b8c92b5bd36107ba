"""From the runs of a sweep to a conclusion: points, what each is compared with, sentences, tables."""
