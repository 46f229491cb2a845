"""Unit tests stay quick: enough examples to find a mistake in a minute's work, and a slow machine is no failure."""

from hypothesis import settings

settings.register_profile("unit", max_examples=40, deadline=None)
settings.load_profile("unit")
