"""A bar chart with ranges as SVG, for a light and a dark page."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, MARGIN = 860, 20
HEAD, ROW, BAR, FOOT = 78, 30, 18, 34
NAMES, NOTES, VALUES = 164, 206, 64  # what names and notes take on the left, and figures on the right
FONT = "-apple-system,BlinkMacSystemFont,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"
THEMES = {
    "": {"text": "#1f2328", "muted": "#59636e", "ours": "#0969da", "theirs": "#b4bcc5", "range": "#1f2328"},
    "-dark": {"text": "#f0f6fc", "muted": "#9198a1", "ours": "#4493f8", "theirs": "#5d656e", "range": "#f0f6fc"},
}


@dataclass(frozen=True)
class Bar:
    """`note` stands beside the name, in another colour. `low` and `high` are the range, which may be one point."""

    name: str
    note: str
    value: float
    low: float
    high: float
    is_ours: bool


def _text(x: float, y: float, what: str, colour: str, size: int = 14, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}"{more}>{what}</text>'


def _bar(bar: Bar, top: float, scale: float, colours: dict[str, str]) -> list[str]:
    left, middle, base = MARGIN + NAMES + NOTES, top + ROW / 2, top + ROW / 2 + 5
    end = left + bar.value * scale
    weight = ' font-weight="600"' if bar.is_ours else ""
    parts = [
        _text(MARGIN, base, escape(bar.name), colours["text"], more=weight),
        _text(MARGIN + NAMES, base, escape(bar.note), colours["muted"], 12),
        f'<rect x="{left}" y="{middle - BAR / 2:.1f}" width="{max(end - left, 1):.1f}" height="{BAR}" rx="2" '
        f'fill="{colours["ours" if bar.is_ours else "theirs"]}"/>',
    ]
    low, high = left + bar.low * scale, left + bar.high * scale
    if high - low > 1:
        path = f"M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"
        parts.append(f'<path d="{path}" stroke="{colours["range"]}" stroke-width="1.5" fill="none"/>')
    figure = f"{bar.value:,.0f}"
    parts.append(_text(max(end, high) + 10, base, figure, colours["text"], more=weight))
    return parts


def draw(bars: list[Bar], title: str, subtitle: str, footer: str, theme: str) -> str:
    """The largest first."""
    colours = THEMES[theme]
    bars = sorted(bars, key=lambda bar: -bar.value)
    height = HEAD + ROW * len(bars) + FOOT
    scale = (WIDTH - 2 * MARGIN - NAMES - NOTES - VALUES) / max(bar.high for bar in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="{FONT}" role="img">',
        f"<title>{escape(title)}</title>",
        _text(MARGIN, 30, escape(title), colours["text"], 18, ' font-weight="600"'),
        _text(MARGIN, 54, escape(subtitle), colours["muted"], 13),
    ]
    for index, bar in enumerate(bars):
        parts += _bar(bar, HEAD + ROW * index, scale, colours)
    parts += [_text(MARGIN, height - 12, escape(footer), colours["muted"], 12), "</svg>"]
    return "\n".join(parts) + "\n"
