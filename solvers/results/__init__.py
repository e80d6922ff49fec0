"""Results: numbers, messages and errors."""
