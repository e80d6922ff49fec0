"""From what a user hands over to a checked problem and a choice."""
