"""Additive Schwarz with small exact subdomain solves and a cluster coarse space."""
