"""Bar charts as SVG, for a light and a dark page: bars with ranges, and stacks of shares."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, MARGIN = 860, 20
HEAD, ROW, BAR, FOOT = 78, 30, 18, 34
NAMES, NOTES, VALUES = 164, 226, 64  # what names and notes take on the left, and figures on the right
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


# Of the parts of a stack, in their order; to be told apart on either page.
PART_COLOURS = (
    *(
        "#4c78a8",
        "#9ecae9",
        "#1f4e79",
        "#e45756",
        "#ffbf79",
        "#54a24b",
        "#88d27a",
        "#2d6a35",
        "#b79a20",
        "#bab0ac",
        "#b279a2",
    ),
)
STACK_ROW, STACK_BAR, STACK_NAMES, LEGEND_COLUMN, LEGEND_ROW = 24, 15, 276, 140, 20


@dataclass(frozen=True)
class Stack:
    """`shares` of the whole, 1; `note` says how much that is."""

    name: str
    note: str
    shares: tuple[float, ...]


def _stack(stack: Stack, top: float, scale: float, colours: dict[str, str]) -> list[str]:
    base, at = top + STACK_ROW / 2 + 5, float(MARGIN + STACK_NAMES)
    parts = [_text(MARGIN, base, escape(stack.name), colours["text"], 13)]
    for share, colour in zip(stack.shares, PART_COLOURS):
        width = share * scale
        parts.append(f'<rect x="{at:.1f}" y="{top + 4:.1f}" width="{width:.1f}" height="{STACK_BAR}" fill="{colour}"/>')
        at += width
    return [*parts, _text(at + 8, base, escape(stack.note), colours["muted"], 12)]


def stacked(stacks: list[Stack], names: list[str], title: str, subtitle: str, footer: str, theme: str) -> str:
    """`names` of the parts. In the order they are given."""
    colours = THEMES[theme]
    across = (WIDTH - 2 * MARGIN) // LEGEND_COLUMN
    head = HEAD + LEGEND_ROW * (-(-len(names) // across)) + 6
    height = head + STACK_ROW * len(stacks) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="{FONT}" role="img">',
        f"<title>{escape(title)}</title>",
        _text(MARGIN, 30, escape(title), colours["text"], 18, ' font-weight="600"'),
        _text(MARGIN, 54, escape(subtitle), colours["muted"], 13),
    ]
    for index, (name, colour) in enumerate(zip(names, PART_COLOURS)):
        x, y = MARGIN + LEGEND_COLUMN * (index % across), HEAD + LEGEND_ROW * (index // across)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, y, escape(name), colours["text"], 12))
    for index, stack in enumerate(stacks):
        parts += _stack(stack, head + STACK_ROW * index, WIDTH - 2 * MARGIN - STACK_NAMES - VALUES, colours)
    return "\n".join([*parts, _text(MARGIN, height - 12, escape(footer), colours["muted"], 12), "</svg>"]) + "\n"
