"""Prometheus text, read with the library that defines it."""

from __future__ import annotations

from typing import Any


def _samples(text: Any, name: str) -> list[tuple[dict[str, str], float]]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415  not on a bare host

    if not isinstance(text, str):
        return []
    return [
        (dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def total(text: Any, name: str) -> float:
    """The sum of a counter over its labels; 0 when it is not there."""
    return sum(value for _, value in _samples(text, name))


def by_label(text: Any, name: str, label: str) -> dict[str, float]:
    """One value for each value of `label`."""
    return {labels[label]: value for labels, value in _samples(text, name) if label in labels}
