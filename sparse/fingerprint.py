"""Content hashes of Python objects and arrays that are equal in every process."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any


def fingerprint(*parts: Any) -> str | None:
    """Content hash of objects and of the arrays in them; None where they cannot be pickled.

    Equal content may have several names; different content has one only by a collision of BLAKE2b. Cost: a pass over
    the arrays.
    """
    arrays: list[pickle.PickleBuffer] = []
    try:
        digest = hashlib.blake2b(pickle.dumps(parts, 5, buffer_callback=arrays.append), digest_size=16)
        for array in arrays:
            digest.update(array.raw())
    except Exception:  # what pickle raises of functions, of objects of others, and of strided arrays is of any type
        return None
    return digest.hexdigest()
