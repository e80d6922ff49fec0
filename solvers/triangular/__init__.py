"""Triangular solves by level scheduling, or on the host by SuperLU."""
