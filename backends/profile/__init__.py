"""Profiles: which calls of krylix took how long, asked for by whom. While none runs they cost nothing."""

from .context import get_current_profile, profile, profile_function

__all__ = ["get_current_profile", "profile", "profile_function"]
