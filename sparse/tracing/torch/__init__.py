"""Tracing of functions of PyTorch: recorded as ATen calls, which are then followed one by one."""
