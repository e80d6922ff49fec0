"""Tracing of functions of NumPy: a stand-in for the array records what is done to it."""
