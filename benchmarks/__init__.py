"""Speed of krylix against named peers: `python -m benchmarks` from the repository's root prints a table of ratios."""
