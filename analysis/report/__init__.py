"""Self-contained HTML pages about runs: without scripts and network requests, for screens, phones and paper."""
