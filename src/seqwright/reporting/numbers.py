"""Numbers for readers: short and with their unit, the same in the terminal and on a page."""

from __future__ import annotations

import math

UNITS = ("", " k", " M", " B", " T")


def count(value: float) -> str:
    """How many, to three digits: 950, 12.3 k, 1.23 M."""
    scaled, unit = float(value), 0
    while abs(scaled) >= 999.5 and unit < len(UNITS) - 1:
        scaled, unit = scaled / 1000, unit + 1
    decimals = 0 if unit == 0 or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{decimals}f}{UNITS[unit]}"


def duration(seconds: float) -> str:
    """A stretch of time in its two largest units: 450 ms, 3.1 s, 3 m 20 s, 2 h 5 m."""
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    left = round(seconds)
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        whole, left = divmod(left, size)
        parts.append((whole, unit))
    first = next(i for i, (whole, _) in enumerate(parts) if whole)
    return " ".join(f"{whole} {unit}" for whole, unit in parts[first : first + 2] if whole)


def figure(value: float, digits: int = 4) -> str:
    """A measured value to so many significant digits, trailing zeros kept: they were measured too."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def interval(low: float | None, high: float | None) -> str:
    """Both ends of an interval, or nothing where there were too few examples to make one."""
    return "" if low is None or high is None else f"{figure(low)} – {figure(high)}"
