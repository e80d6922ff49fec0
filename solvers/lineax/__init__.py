"""lineax solver interface."""
