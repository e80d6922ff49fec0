"""Tracing of functions of TensorFlow: recorded as graphs, whose operations are then followed one by one."""
