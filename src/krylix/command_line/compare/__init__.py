"""`krylix compare`: which methods and preconditioners are tried, how they are measured, and what is printed."""
