"""Conversions of times."""

from datetime import UTC, datetime


def utc(at: float) -> datetime:
    """Converts Unix seconds to the form that DateTime64 columns take."""
    return datetime.fromtimestamp(at, UTC)
