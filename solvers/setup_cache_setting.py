"""The setting of the set-up cache, and of all else that is kept of matrices for later solves."""

from __future__ import annotations

from ..backends.setting import Setting

SETUP_CACHE = Setting("setup_cache", True, compiled=False)
