"""Python functions recorded as programs of ATen calls, and what they close over."""
