"""Derivative rules in PyTorch."""
