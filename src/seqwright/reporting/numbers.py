"""Number formatting for terminal and HTML: counts, durations, significant digits, intervals."""

from __future__ import annotations

import math

UNITS = ("", " k", " M", " B", " T")


def count(value: float) -> str:
    """A count to three significant digits with an SI-like suffix: 950, 12.3 k, 1.23 M."""
    scaled, unit = float(value), 0
    while abs(scaled) >= 999.5 and unit < len(UNITS) - 1:
        scaled, unit = scaled / 1000, unit + 1
    decimals = 0 if unit == 0 or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{decimals}f}{UNITS[unit]}"


def duration(seconds: float) -> str:
    """A duration in its two largest units: 450 ms, 3.1 s, 3 m 20 s, 2 h 5 m, 1,530 y 12 d."""
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    remainder = round(seconds)
    parts = []
    for size, unit in ((31_536_000, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        value, remainder = divmod(remainder, size)
        parts.append((value, unit))
    first = next(i for i, (value, _) in enumerate(parts) if value)
    return " ".join(f"{value:,} {unit}" for value, unit in parts[first : first + 2] if value)


def figure(value: float, digits: int = 4) -> str:
    """A value to a number of significant digits, trailing zeros kept."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def interval(low: float | None, high: float | None) -> str:
    """Both bounds of a confidence interval; empty where there were too few examples for one."""
    return "" if low is None or high is None else f"{figure(low)} – {figure(high)}"
