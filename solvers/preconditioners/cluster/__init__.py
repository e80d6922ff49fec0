"""A coarse space that is constant on clusters of unknowns."""
