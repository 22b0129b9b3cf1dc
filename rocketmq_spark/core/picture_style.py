"""The colours and the style sheet of `picture`, in a light and a dark coat.

A picture brings its own background, so it is readable wherever it is put. The system's setting
chooses the coat, and a notebook that says which theme it has overrules it.
"""

from __future__ import annotations

# (background, text) on a light page, then on a dark one. Text has a contrast of 7 and more.
Pair = tuple[str, str]
HUES: tuple[tuple[Pair, Pair], ...] = (
    (("#cfe2ff", "#0b3a75"), ("#1b4480", "#e3eeff")),  # blue
    (("#ffdcb8", "#6b3000"), ("#74400f", "#ffeedd")),  # orange
    (("#bdebe3", "#07443b"), ("#0f574c", "#d9f7f1")),  # teal
    (("#fbd0e4", "#6e0f42"), ("#7a2350", "#ffe4f0")),  # pink
    (("#e0d6ff", "#3a1d86"), ("#4a349a", "#ece6ff")),  # violet
    (("#e2ebb0", "#3c4a00"), ("#4b5710", "#f2f8d2")),  # olive
    (("#d5dbe3", "#26323f"), ("#414d5b", "#eef2f6")),  # slate
    (("#ecd5c3", "#54290b"), ("#5f3b24", "#f9ebe0")),  # brown
)
MARKS: dict[str, tuple[Pair, Pair]] = {
    "dropped": (("#ffd7d5", "#7f0d12"), ("#6d1a1e", "#ffe3e2")),
    "kept": (("#c8f0d0", "#0c4a1f"), ("#16532a", "#d9f7e0")),
    "added": (("#ffe98a", "#4d3a00"), ("#5f4a00", "#fff3c4")),
}
# Page, card, text, quiet text, lines, bars.
SURFACES: dict[str, tuple[str, str]] = {
    "page": ("#f4f6f8", "#0e1116"),
    "card": ("#ffffff", "#181c23"),
    "text": ("#1b2129", "#e8ebf0"),
    "quiet": ("#505b68", "#a9b3c0"),
    "line": ("#d9dee5", "#333a45"),
    "bar": ("#8aa4c8", "#5d7fb0"),
}

_LIGHT, _DARK = 0, 1


def _tokens(coat: int) -> str:
    values = [f"--rmq-{name}:{pair[coat]}" for name, pair in SURFACES.items()]
    named = {f"hue{number}": pair for number, pair in enumerate(HUES)} | MARKS
    for name, pairs in named.items():
        background, text = pairs[coat]
        values += [f"--rmq-{name}:{background}", f"--rmq-{name}-text:{text}"]
    return ";".join(values)


def _paint() -> str:
    names = [*(f"hue{number}" for number in range(len(HUES))), *MARKS]
    return "".join(
        f".rmq .{name}{{background:var(--rmq-{name});color:var(--rmq-{name}-text)}}"
        for name in names
    )


_ROOTS = ".rmq,.rmq-page"
# JupyterLab, VS Code and Colab, in this order, say which theme they have.
_SAID_LIGHT = ("[data-jp-theme-light=true]", ".vscode-light", "html[theme=light]")
_SAID_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]")


def _said(hosts: tuple[str, ...], coat: int) -> str:
    return f"{','.join(f'{host} .rmq' for host in hosts)}{{{_tokens(coat)}}}"


# Notebooks style tables of their own accord, stripes included; where these rules repeat what a
# browser does anyway, they take that back.
_LAYOUT = """
.rmq-page{margin:0;padding:24px;background:var(--rmq-page)}
.rmq-page main{max-width:1500px;margin:0 auto;display:grid;gap:20px;justify-items:start}
.rmq-cards{display:flex;flex-wrap:wrap;gap:20px;align-items:flex-start}
.rmq-cards .rmq>p{width:0;min-width:100%}
.rmq{box-sizing:border-box;width:fit-content;max-width:100%;padding:16px 20px;
border:1px solid var(--rmq-line);
border-radius:12px;background:var(--rmq-card);color:var(--rmq-text);
font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.rmq h2{margin:0;font-size:17px;font-weight:650;color:inherit}
.rmq p{margin:4px 0 0;color:var(--rmq-quiet);overflow-wrap:anywhere}
.rmq .scroll{overflow-x:auto;margin-top:12px}
.rmq table{border-collapse:separate;border-spacing:0;margin:0;width:auto;font-size:13px;
font-variant-numeric:tabular-nums;color:inherit;background:none;border:0}
.rmq th,.rmq td{padding:3px 2px;border:0;font-weight:400;text-align:center;vertical-align:middle;
background:none;color:inherit;white-space:nowrap}
.rmq thead{border:0}
.rmq table tbody tr:nth-child(n){background:none}
.rmq thead th{color:var(--rmq-quiet);font-size:12px}
.rmq tbody tr>*{border-top:1px solid var(--rmq-line)}
.rmq .left{text-align:left;padding-right:16px}
.rmq .right{text-align:right;padding-right:14px}
.rmq td.left{white-space:normal}
.rmq td.runs{line-height:2}
.rmq td.why{color:var(--rmq-quiet)}
.rmq tr>.left:first-child{position:sticky;left:0;background:var(--rmq-card)}
.rmq tbody th.left{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;
max-width:26em;white-space:normal;overflow-wrap:anywhere}
.rmq .group{padding:0 2px 2px 14px}
.rmq .name{display:block;padding:1px 8px;border-radius:6px;font-weight:600}
.rmq .first{padding-left:14px}
.rmq .queue{display:inline-block;min-width:1.5em;padding:2px 5px;border-radius:6px;
font-weight:600;line-height:1.35;text-align:center}
.rmq td.left .queue{margin-right:4px}
.rmq .dropped{outline:1.5px dashed var(--rmq-dropped-text);outline-offset:-1.5px}
.rmq .added{box-shadow:inset 0 0 0 1.5px var(--rmq-added-text)}
.rmq .legend{display:flex;gap:6px;align-items:center}
.rmq .legend .queue:not(:first-child){margin-left:10px}
.rmq .note{margin-left:6px;padding:1px 7px;border:1px solid var(--rmq-line);border-radius:99px;
font:12px system-ui,sans-serif;color:var(--rmq-quiet)}
.rmq .left-us bdi{text-decoration:line-through}
.rmq .bar{display:block;height:3px;margin:1px 0 0 auto;border-radius:2px;background:var(--rmq-bar)}
"""

CSS = (
    f"{_ROOTS}{{{_tokens(_LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{{_ROOTS}{{{_tokens(_DARK)}}}}}"
    + _said(_SAID_LIGHT, _LIGHT)
    + _said(_SAID_DARK, _DARK)
    + _LAYOUT.replace("\n", "")
    + _paint()
)
