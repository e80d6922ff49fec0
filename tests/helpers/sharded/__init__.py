"""Solves with arrays that are spread over virtual devices, in processes of their own."""
