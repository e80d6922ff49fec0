"""krylix as a linear solver of lineax."""
