"""Diagnosis of failed solves, after the failure only."""
