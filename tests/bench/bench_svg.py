# SPDX-License-Identifier: MIT
"""The picture of a run: bars of the medians, with what they are beside."""
import statistics
from xml.sax.saxutils import escape

# title, unit, digits, [(key, label, whether it is ours)]
PANELS = (
    ("Acked events per second", "", 0, (
        ("four_spread", "straight Redis, four commands", False),
        ("evalsha", "straight Redis, a script each", False),
        ("like_first", "likesyncd, first likes", True),
        ("like_optimistic", "likesyncd, optimistic", True),
        ("like_known", "likesyncd, known pairs", True))),
    ("Acked and durable, likes per second, spread", "", 0, (
        ("direct_spread", "straight PostgreSQL", False),
        ("direct_async", "the same, synchronous_commit off", False),
        ("cron", "a cron script", False),
        ("sustained_spread", "likesyncd, lag below 5 s", True))),
    ("Acked and durable, likes per second, one hot post", "", 0, (
        ("direct_hot", "straight PostgreSQL", False),
        ("sustained_hot", "likesyncd, lag below 5 s", True))),
    ("Rows per second into PostgreSQL", "", 0, (
        ("copy", "bare COPY", False),
        ("flush", "the flush of likesyncd", True))),
    ("A like at half of the most, its waiting time included", " ms", 2, (
        ("rate_p50", "median", True),
        ("rate_p99", "99 of 100", True),
        ("rate_p999", "999 of 1000", True),
        ("drain_p99", "99 of 100, while a backlog drains", True))),
)
WIDTH, LEFT, RIGHT, ROW, HEAD, GAP = 760, 270, 110, 24, 34, 16
# Both are readable on a light and on a dark page.
STYLE = """text { font: 13px sans-serif; fill: #24292f }
.title { font-weight: bold }
.ours { fill: #2a7de1 } .others { fill: #8b949e }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }"""


def rows_of(bench, keys):
    return [(label, statistics.median(bench.figures[key]), ours)
            for key, label, ours in keys if bench.figures.get(key)]


def bar(y, label, value, text, most, ours):
    width = max(1, (WIDTH - LEFT - RIGHT) * value / most)
    kind = "ours" if ours else "others"
    return (f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(label)}'
            f'</text><rect class="{kind}" x="{LEFT}" y="{y + 3}" height="{ROW - 6}"'
            f' width="{width:.1f}" rx="2"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 15}">{text}</text>')


def draw(bench):
    """SVG text; panels of which nothing was measured are left out."""
    parts, y = [], GAP
    for title, unit, digits, keys in PANELS:
        rows = rows_of(bench, keys)
        if not rows:
            continue
        parts.append(f'<text class="title" x="8" y="{y + 18}">{escape(title)}'
                     "</text>")
        y += HEAD - 6
        most = max(value for _, value, _ in rows) or 1
        for label, value, ours in rows:
            parts.append(bar(y, label, value, f"{value:,.{digits}f}{unit}", most,
                             ours))
            y += ROW
        y += GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}"'
            f' viewBox="0 0 {WIDTH} {y}" role="img" aria-label="Measurements of'
            f' likesyncd">\n<style>{STYLE}</style>\n' + "\n".join(parts)
            + "\n</svg>\n")
