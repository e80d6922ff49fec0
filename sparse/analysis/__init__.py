"""What can be found out about a matrix: its facts, each with what it costs."""
