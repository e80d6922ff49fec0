"""Profiles: which calls of krylix took how long, asked for by whom. While none runs they cost nothing.

context        profile, profile_function, get_current_profile
spans          `with` blocks of other layers that are events, and methods of theirs that are watched
user_profile   Profile: what the user gets, to be printed and saved
recording      one call, the user's lines that led to it, the events of one run
watching       functions that record their calls, and where they stand in while a profile runs
"""

from .context import get_current_profile, profile, profile_function

__all__ = ["get_current_profile", "profile", "profile_function"]
