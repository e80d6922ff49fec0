"""Set-up: from a user's arguments to a checked problem and a method."""
