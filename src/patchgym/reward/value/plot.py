"""Reliability plots: what a score says against how often it came true, as text and as SVG."""

from collections.abc import Sequence

from patchgym.reward.value.quality import Bin

_WIDTH = 40
_SIDE = 320
_MARGIN = 48


def text_plot(bins: Sequence[Bin]) -> str:
    """A line for each bin: its bounds, how many scores, a bar as long as the share solved and a mark at the mean
    score. Bar and mark end together where the model is calibrated."""
    lines = ["score      count  share solved (#) and mean score (|)"]
    for one in bins:
        row = [" "] * (_WIDTH + 1)
        if one.solved is not None and one.mean_score is not None:
            row[: round(one.solved * _WIDTH)] = "#" * round(one.solved * _WIDTH)
            row[round(one.mean_score * _WIDTH)] = "|"
        figures = f"{one.solved:.2f} {one.mean_score:.2f}" if one.solved is not None else ""
        lines.append(f"{one.low:.1f}-{one.high:.1f} {one.count:8d}  {''.join(row)} {figures}".rstrip())
    return "\n".join(lines)


def svg_plot(bins: Sequence[Bin], title: str) -> str:
    """A drawing of its own: a point for each bin, larger where there are more scores, on axes from 0 to 1 with the line
    that calibrated scores lie on. ``title`` is text, whatever is in it."""
    most = max((one.count for one in bins), default=0) or 1
    size = _SIDE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="12">',
        f'<rect width="{size}" height="{size}" fill="white"/>',
        f'<text x="{size / 2:g}" y="24" text-anchor="middle">{_escaped(title)}</text>',
        f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="black"/>',
        f'<path d="M{_x(0):g} {_y(0):g}L{_x(1):g} {_y(1):g}" stroke="grey" stroke-dasharray="4"/>',
    ]
    for tick in range(0, 11, 2):
        at = tick / 10
        parts.append(f'<text x="{_x(at):g}" y="{_y(0) + 16:g}" text-anchor="middle">{at:g}</text>')
        parts.append(f'<text x="{_x(0) - 8:g}" y="{_y(at) + 4:g}" text-anchor="end">{at:g}</text>')
    parts.append(f'<text x="{size / 2:g}" y="{size - 10}" text-anchor="middle">mean score</text>')
    parts.append(f'<text transform="translate(14 {size / 2:g}) rotate(-90)" text-anchor="middle">share solved</text>')
    for one in bins:
        if one.solved is None or one.mean_score is None:
            continue
        radius = 3 + 9 * (one.count / most) ** 0.5
        told = f"{one.low:.1f}-{one.high:.1f}: {one.count} scores, mean {one.mean_score:.3f}, solved {one.solved:.3f}"
        place = f'cx="{_x(one.mean_score):.1f}" cy="{_y(one.solved):.1f}" r="{radius:.1f}"'
        parts.append(f'<circle {place} fill="steelblue" fill-opacity="0.7"><title>{told}</title></circle>')
    return "\n".join([*parts, "</svg>", ""])


def _x(value: float) -> float:
    return _MARGIN + value * _SIDE


def _y(value: float) -> float:
    return _MARGIN + (1 - value) * _SIDE


def _escaped(text: str) -> str:
    """Text as XML's text, without the characters that XML 1.0 forbids."""
    kept = "".join(char for char in text if char.isprintable())
    return kept.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
