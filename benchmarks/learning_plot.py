"""Draws the curves of `learning.py`, one panel an algorithm, each a mean with a band of one standard error."""

import math

COLORS = {"strop": "#1f5fa8", "trl": "#d9731a"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 260, 170, 40, 34, 30
SMOOTH = 5
"""Steps that one point of a curve is the mean of."""


def as_svg(curves: dict[str, dict[str, list[list[float]]]]) -> str:
    """Returns the picture of rewards, by algorithm, side, seed and step."""
    panels = [panel(place, name, sides) for place, (name, sides) in enumerate(curves.items())]
    width = LEFT + len(panels) * (WIDTH + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 34}" width="{width}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def panel(place: int, name: str, sides: dict[str, list[list[float]]]) -> str:
    left, bottom = LEFT + place * (WIDTH + GAP), TOP + HEIGHT
    num_steps = len(next(iter(sides.values()))[0])
    parts = [f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{name}: mean reward by step</text>']
    for value in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - value * HEIGHT
        parts.append(f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{value:g}</text>')
    for step in range(0, num_steps + 1, 50):
        x = left + WIDTH * step / num_steps
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle" fill="#555">{step}</text>')
    for place_of_label, (side, runs) in enumerate(sides.items()):
        points = [(left + WIDTH * step / num_steps, bottom, *middle) for step, middle in smoothed(runs)]
        upper = [f"{x:.1f},{y - (value + error) * HEIGHT:.1f}" for x, y, value, error in points]
        lower = [f"{x:.1f},{y - (value - error) * HEIGHT:.1f}" for x, y, value, error in points]
        line = [f"{x:.1f},{y - value * HEIGHT:.1f}" for x, y, value, _ in points]
        color = COLORS[side]
        parts.append(f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{color}" opacity="0.2"/>')
        parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        label_y = TOP + 14 + 14 * place_of_label
        parts.append(f'<text x="{left + 8}" y="{label_y}" fill="{color}">{side}, {len(runs)} seeds</text>')
    return "\n".join(parts)


def smoothed(runs: list[list[float]]) -> list[tuple[float, tuple[float, float]]]:
    """Returns, for each `SMOOTH` steps, their middle and the mean over the seeds with its standard error."""
    result = []
    for start in range(0, len(runs[0]), SMOOTH):
        values = [sum(part) / len(part) for part in (run[start : start + SMOOTH] for run in runs)]
        middle = sum(values) / len(values)
        variance = sum((value - middle) ** 2 for value in values) / max(1, len(values) - 1)
        result.append((start + SMOOTH / 2, (middle, math.sqrt(variance / len(values)))))
    return result
