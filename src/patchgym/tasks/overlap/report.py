"""Matches as one self-contained HTML page: the passages side by side, for a person to judge. All text is escaped."""

from collections.abc import Sequence
from html import escape

from patchgym.tasks.overlap.index import Match
from patchgym.tasks.overlap.tokens import code_tokens

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.sides h3 { font-size: .85rem; margin: 0; color: #555; font-weight: normal; }
pre { background: #f6f6f4; padding: .6rem; overflow: auto; max-height: 32rem; white-space: pre-wrap;
      overflow-wrap: anywhere; margin: .2rem 0; }
mark { background: #ffe59a; color: inherit; display: block; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } pre { background: #242424; }
      mark { background: #5a4a12; } .sides h3 { color: #aaa; } }
"""


def html_report(title: str, matches: Sequence[Match], checked: int, records: int) -> str:
    """The page. Lines whose tokens stand in both passages are marked."""
    count = "No matches" if not matches else f"{len(matches)} match{'es' if len(matches) > 1 else ''}"
    told = f"{count} of {checked} task{'s' if checked != 1 else ''} with {records} records."
    parts = [_match(match) for match in matches]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_shown(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{_shown(title)}</h1><p>{_shown(told)}</p>\n{''.join(parts)}</body></html>\n"
    )


def common_lines(ours: str, theirs: str) -> frozenset[str]:
    """The lines of either passage, as they are written, whose tokens make a line of the other."""
    mine, other = ({line: tuple(code_tokens(line)) for line in text.split("\n")} for text in (ours, theirs))
    both = set(mine.values()) & set(other.values()) - {()}
    return frozenset(line for line, tokens in (*mine.items(), *other.items()) if tokens in both)


def _match(match: Match) -> str:
    common = common_lines(match.ours, match.theirs)
    head = f"{match.task}: {match.kind} of {match.record} ({match.origin}), {match.similarity:.0%} in common"
    return (
        f'<section><h2>{_shown(head)}</h2><div class="sides">'
        f"<div><h3>task {_shown(match.task)}</h3><pre>{_lines(match.ours, common)}</pre></div>"
        f"<div><h3>record {_shown(match.record)}</h3><pre>{_lines(match.theirs, common)}</pre></div>"
        "</div></section>\n"
    )


def _lines(text: str, common: frozenset[str]) -> str:
    """The passage, a line each; a marked line ends itself, being a block."""
    return "".join(
        f"<mark>{_shown(line)}</mark>" if line in common else f"{_shown(line)}\n" for line in text.split("\n")
    )


def _shown(text: str) -> str:
    """Text as HTML. Control characters are shown as a square: a page may not hold them."""
    plain = "".join(
        char if char in "\n\t" or (char >= " " and not "\ud800" <= char <= "\udfff") else "\ufffd" for char in text
    )
    return escape(plain, quote=True)
