"""Random tests by hypothesis, with a number of examples for each tier; what fails is made as small as it gets."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

# The same examples in every run, but others on demand; nothing is kept in the tree.
_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
for name in ("default", "merge", "slow"):
    settings.register_profile(name, derandomize=name != "slow", print_blob=name == "slow", **_COMMON)


def random_examples(default: int, merge: int, slow: int, **strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """Make a test with random arguments one for each tier, with so many examples."""
    tiers = [
        pytest.param("default", default),
        pytest.param("merge", merge, marks=pytest.mark.merge),
        pytest.param("slow", slow, marks=pytest.mark.slow),
    ]

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.parametrize(("profile", "examples"), tiers)
        def test(profile: str, examples: int) -> None:
            chosen = settings(settings.get_profile(profile), max_examples=examples, phases=set(Phase) - {Phase.explain})
            chosen(given(**strategies)(body))()

        test.__doc__ = body.__doc__
        return test

    return decorate
