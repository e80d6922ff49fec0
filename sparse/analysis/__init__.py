"""What can be found out about a matrix: `Analysis` keeps what is asked more than once, the other files find it."""
