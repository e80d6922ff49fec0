"""What tests of first and later calls look at."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """What XLA compiles during a test."""
    import jax

    found: list[str] = []

    def listen(event: str, duration: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(str(facts))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)
