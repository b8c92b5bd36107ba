"""One self-contained HTML page about runs: no script, no network request, made for screens, phones and paper."""
