"""Communicators: processes or devices that each hold a part of every vector, and sums over them."""
