"""Blocks as one HTML page that needs no other file: pictures and style are inside. Pure."""

import re
from collections.abc import Sequence
from html import escape

from spillway_lab.pages.blocks import Block, Command, Heading, Picture, Table, Text

_INTERVAL = re.compile(r"(\([^() ]+–[^() ]+\))")  # stays on one line
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
  color: #111; background: #fff; }
h1 { font-size: 1.8rem; } h2 { margin-top: 3rem; border-bottom: 2px solid #ccc; } h3 { margin-top: 2rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; } thead { display: table-header-group; }
table.numbers td:not(:first-child), table.numbers th:not(:first-child) { text-align: right; }
table.numbers td { min-width: 4rem; } .held { white-space: nowrap; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
pre { background: #f4f4f4; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
.scroll { overflow-x: auto; }
@media print {
  @page { margin: 15mm; }
  body { font-size: 10pt; margin: 0; max-width: none; padding: 0; }
  table { font-size: 8pt; } table.numbers td { min-width: 0; } th, td { padding: .1rem .35rem; }
  h2, h3 { break-after: avoid; } figure, tr, pre { break-inside: avoid; }
  .scroll { overflow: visible; } a { color: inherit; text-decoration: none; }
  figure svg { max-height: 110mm; }
}
"""


def page(title: str, blocks: Sequence[Block]) -> str:
    body, styles = _apart("\n".join(_block(number, block) for number, block in enumerate(blocks)))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{styles}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _apart(body: str) -> tuple[str, str]:
    """Returns the body without the styles of its pictures, and each of their rules once.

    Rules of the same name are the same in all pictures.
    """
    rules: dict[str, None] = {}

    def one(found: re.Match[str]) -> str:
        rules.update(dict.fromkeys(re.findall(r"[^}]+}", found[1])))
        return ""

    body = re.sub(r'<defs>\s*<style type="text/css">(.*?)</style>\s*</defs>\s*', one, body, flags=re.S)
    return body, "".join(f"figure svg {rule}\n" for rule in rules)


def _block(number: int, block: Block) -> str:
    match block:
        case Heading():
            anchor = f' id="{escape(block.anchor)}"' if block.anchor else ""
            return f"<h{block.level}{anchor}>{_inline(block.text)}</h{block.level}>"
        case Text():
            text = _inline(block.text)
            return f"<p><strong>{text}</strong></p>" if block.strong else f"<p>{text}</p>"
        case Table():
            return _table(block)
        case Picture():
            svg = _own_names(block.svg, f"p{number}-")
            return f'<figure role="img" aria-label="{escape(block.about)}">{svg}</figure>'
        case Command():
            return f"<pre><code>{escape(block.text)}</code></pre>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in table.columns)
    rows = []
    for number, row in enumerate(table.rows):
        cells = [_INTERVAL.sub(r'<span class="held">\1</span>', _inline(cell)) for cell in row]
        if table.links:
            cells[0] = f'<a href="#{escape(table.links[number])}">{cells[0]}</a>'
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    kind = ' class="numbers"' if table.numbers else ""
    return (
        f'<div class="scroll"><table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _inline(text: str) -> str:
    """Escapes text; what is in backticks becomes code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd number of backticks marks nothing
        return escape(text)
    return "".join(
        f"<code>{escape(part)}</code>" if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def _own_names(svg: str, prefix: str) -> str:
    """Prefixes ids and references to them: all pictures of a page share its ids."""
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}', svg)
    return svg.replace("url(#", f"url(#{prefix}")
