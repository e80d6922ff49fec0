"""From a function to its sparse matrix: an engine that knows no framework, and a front end per library."""
