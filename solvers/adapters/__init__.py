"""Adapters of a plain solve: to members, devices, arrays that need conversion, and NumPy in a first call."""
