"""The array API standard on every library: which functions there are, one promotion rule, and default dtypes."""
