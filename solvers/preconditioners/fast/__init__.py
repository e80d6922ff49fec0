"""Fast transforms of a nearby operator."""
