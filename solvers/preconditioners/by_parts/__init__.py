"""Preconditioners of matrices whose rows are cut: made and applied part by part."""
