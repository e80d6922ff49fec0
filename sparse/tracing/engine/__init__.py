"""From a function to its sparse matrix: the structure engine, which knows no framework."""
