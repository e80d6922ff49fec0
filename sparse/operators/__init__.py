"""Operators that are no matrices: functions, and operators made of others."""
