"""Profiles: which calls of krylix took how long, asked for by whom. While none runs they cost nothing.

context        profile, profile_function, get_current_profile
spans          `with` blocks of other layers that are events, and methods of theirs that are watched
user_profile   Profile: what the user gets, to be printed, saved and drawn
recording      the events of one run, by threads
event          one call
source_lines   the user's lines that led to a call
watching       functions that record their calls, and where they stand in while a profile runs
operations     which functions of a backend are watched
places         all watched functions, put in their places
trace_events   a file for trace viewers
report         a table in text
timeline       a picture
"""

from .context import get_current_profile, profile, profile_function

__all__ = ["get_current_profile", "profile", "profile_function"]
