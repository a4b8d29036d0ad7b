"""Leaks that give orders: "delete the try block", "change `<` to `<=`", in English and Chinese.

What the software should do ("it should drop the prefix from the output") is a symptom; what the reader should do to the
code ("drop the check in clamp") is an order. The difference lies in who is spoken to, in the noun, and in whether what
is quoted is what the patch changes.
"""

import re
from collections.abc import Iterator

from patchgym.tasks.gates.statement.answer import Answer, tokens_of
from patchgym.tasks.gates.statement.leak import Leak

_OPERATOR = r"(?:[<>=!]=|<<|>>|\*\*|//|[-+*/%&|^]=|[-+*/%<>&|^](?![-\w>]))"
_KEYWORD = r"\b(?:True|False|None|self|cls|break|continue|pass|yield|await|and|or|not|elif|max|min|any|all)\b"
_SPAN = (
    rf"(?:`[^`\n]{{1,90}}`|“[^”\n]{{1,60}}”|\"[^\"\n]{{1,60}}\"|'[^'\n]{{1,60}}'|{_OPERATOR}|{_KEYWORD}"
    r"|\b[A-Za-z_][\w.]{0,60}\([^()\n]{0,60}\)|\b[A-Za-z][A-Za-z0-9]{0,40}_\w{1,60}\b"
    r"|\b[a-z_]\w{0,40}\.[a-z_]\w{0,40}\b|(?<![\w.])-?\d{1,9}\b(?!\.\d))"
)
_OPERATOR_WORD = (
    r"(?:less[- ]than|greater[- ]than|at[- ](?:least|most)|strict(?:ly)?|inclusive|exclusive|equals?|equality)"
)
_NOUN = (
    r"(?:lines?\s+\d+|(?:that|this|offending|whole|entire)\s+lines?"
    r"|(?:try|except|finally|else|elif|if|for|while|with)"
    r"(?:[-/ ](?:except|else|finally|block|branch|clause|statement|loop|check|body))+"
    r"|`(?:try|except|finally|else|elif|if|for|while|with|return|break|continue|not|raise|await|yield|pass)`(?:\s+\w+)?"
    r"|(?:extra|redundant|superfluous|stray|unneeded|wrong|spurious|duplicate)\s+`[^`\n]+`"
    r"|(?:code\s+)?(?:statements?|conditions?|conditionals?|checks?|guards?|clauses?|branch(?:es)?|assignments?|operators?"
    r"|operands?|comparisons?|negations?|decorators?|casts?|increments?|decrements?|early\s+returns?|returns?\s+statements?"
    r"|returns?(?!\s+(?:types?|values?|codes?)\b)|loops?|(?:(?:function|method|super)\s)?calls?|arguments|caching\s+(?:logic|code)|cache\s+(?:logic|lookup)"
    r"|(?:one[- ]line|code)\s+blocks?|off[- ]by[- ]one|slice\s+bounds?|loop\s+bounds?"
    r"|default\s+(?:value|argument)s?)(?!\w))"
)
_DET = r"(?:(?:the|these|those|a|an|its|any|all|both|two|whole|entire|extra|one|unneeded)\s+)"
_MANY = r"(?:[\w`.()'/-]+\s+){0,4}?"
_START = r"(?:^|(?<=[.!?;:。])\s|(?<=\n))[\s>*#\d.)-]{0,12}"
_POLITE = r"(?:(?:please|just|simply|then|now|so|instead|finally|maybe|also|you can|to fix[^,.\n]{0,40},),?\s){0,4}"
_SPOKEN = (
    r"\b(?:you|we|one|maintainers?|i)\s+(?:should|must|can|could|may|might|have\s+to|need\s+to|only\s+need\s+to|want\s+to|will"
    r"|would)\s+(?:just\s+|simply\s+|only\s+|also\s+)?"
)
_REMEDY = (
    r"\b(?:fix|solution|patch|change|remedy|answer|trick|cure|suffices|enough|needs?|needed|have|has|required|necessary|idea)"
    r"(?:\s+(?:here|for\s+this|is|was|would\s+be|it|this|seems))*\s+to\s+(?:just\s+|simply\s+)?"
)
_LEAD = rf"(?:{_START}{_POLITE}|{_SPOKEN}|{_REMEDY}|\b(?:please|just|simply)\s+)"
_GERUND_LEAD = (
    r"\b(?:by|try|suggest|propose|recommend|consider|requires?|means|involves|solution\s+is|fix\s+is|fix\s*:|works\s+after)\s+"
    r"(?:just\s+|simply\s+)?"
)
_CUT = (
    "remove",
    "delete",
    "drop",
    "eliminate",
    "strip",
    "erase",
    "omit",
    "skip",
    "disable",
    "comment out",
    "get rid of",
)
_TURN = (
    "invert",
    "negate",
    "flip",
    "reverse",
    "swap",
    "exchange",
    "reorder",
    "move",
    "wrap",
    "unwrap",
    "tighten",
    "loosen",
    "relax",
    "restore",
    "reinstate",
    "revert",
    "correct",
    "hoist",
    "put back",
)
_PUT = ("add", "insert", "introduce", "put", "prepend", "append")
_PUT_NOUN = (
    r"(?:`(?:return|not|break|continue|await|else|elif|raise|yield|self|try|except)\b[^`\n]{0,40}`"
    r"|`[-+*/%<>=!&|^]{1,2}\s?1?`"
    r"|(?:early\s+)?returns?\b|checks?\b|guards?\b|conditions?\b|branch(?:es)?\b|else\b|elif\b|break\b|continue\b"
    r"|try\b|except\b|cast\b|calls?\s+to\b|null\s+check|none\s+check|parenthes[ei]s\b|not\b|[+-]\s*1\b|if\s+(?:statement|block)"
    r"|await\b|super\(\)|negation\b|strip\(\)"
    r"|\w+\s+(?:before|after|inside|outside|into|out\s+of|above|below)\s+(?:the\s+|that\s+)?"
    r"(?:loop|branch|condition|block|return|`if`|try)\b)"
)
_SWITCH = (
    r"(?:chang|replac|swap|switch|turn|convert|exchang|modif|substitut|correct|set|updat|renam|flip|revert|restor|edit)"
)
_DATA = re.compile(
    r"\b(?:from|in|of|to|into|at)\s+(?:the\s+|an?\s+|its\s+|your\s+|my\s+|each\s+)?(?:\w+\s+)?(?:output|results?|inputs?|documents?"
    r"|csv|json|xml|yaml|strings?|text|urls?|tables?|lists?|dict\w*|trees?|quer(?:y|ies)|sql|responses?|requests?|pages?|template"
    r"|databases?|cells?|rows?|columns?|readme|docs?|documentation|payload|dates?|messages?|tests?|expression|pattern|schema|sample"
    r"|config\w*|shell|terminal)\b",
    re.IGNORECASE,
)


def _verbs(stems: tuple[str, ...]) -> str:
    return "(?:" + "|".join(stem.replace(" ", r"\s+") for stem in stems) + ")"


def _gerunds(stems: tuple[str, ...]) -> str:
    """``removing`` for ``remove``: a dropped e, a doubled consonant, or neither."""
    found = []
    for stem in stems:
        head, space, rest = stem.partition(" ")
        root = head.removesuffix("e")
        found.append(f"{root}(?:{root[-1]})?ing" + (r"\s+" + rest.replace(" ", r"\s+") if space else ""))
    return "(?:" + "|".join(found) + ")"


_FLAGS = re.IGNORECASE
_AROUND = (
    r"(?:guard|wrap|surround|protect|enclose)\s+[^.;\n]{0,40}?\s(?:with|in|by|inside)\s+(?:an?\s+|the\s+)?"
    r"(?:`?(?:if|try|else|elif|while|except|with)`?(?:[-/ ](?:except|else))?\s+"
    r"(?:statement|block|clause|check|branch|loop)"
    r"|conditions?\b|guards?\b|(?:null|none|bounds?|length|type|empty)[- ]checks?\b|isinstance\b)"
)
_MARKS = frozenset(".,:;()[]{}-")
_NOUN_ORDERS = (
    re.compile(rf"{_LEAD}(?P<words>{_verbs((*_CUT, *_TURN))}\s+{_DET}{{0,4}}{_MANY}{_NOUN})", _FLAGS),
    re.compile(rf"{_GERUND_LEAD}(?P<words>{_gerunds((*_CUT, *_TURN))}\s+{_DET}{{0,4}}{_MANY}{_NOUN})", _FLAGS),
    re.compile(
        rf"{_LEAD}(?P<words>{_verbs(_PUT)}\s+(?:back\s+)?{_DET}{{0,4}}(?:missing\s+)?(?:\w+\s+)??{_PUT_NOUN})",
        _FLAGS,
    ),
    re.compile(
        rf"{_GERUND_LEAD}(?P<words>{_gerunds(_PUT)}\s+{_DET}{{0,4}}(?:missing\s+)?(?:\w+\s+)??{_PUT_NOUN})",
        _FLAGS,
    ),
    re.compile(
        rf"(?P<words>{_NOUN}\s+(?:[^.;\n]{{0,30}}\s)?(?:should|must|needs?\s+to|has\s+to|have\s+to|ought\s+to|can|could|is\s+to)\s+"
        r"(?:simply\s+|just\s+)?be\s+(?:removed|deleted|dropped|inverted|negated|flipped|swapped|reversed|moved|wrapped|replaced"
        r"|changed|commented\s+out|restored|exchanged|reordered|strict|non-strict|inclusive|exclusive|tightened|loosened))",
        _FLAGS,
    ),
    re.compile(
        rf"{_LEAD}(?P<words>make\s+{_DET}{{0,4}}{_MANY}(?:comparison|condition|check|bound|operator|inequality)\s+"
        r"(?:(?:in|ex)clusive|(?:non-)?strict))",
        _FLAGS,
    ),
    re.compile(rf"{_LEAD}(?P<words>{_AROUND})", _FLAGS),
    re.compile(
        rf"{_LEAD}(?P<words>initiali[sz]e\s+{_MANY}(?:to|with|as)\s+{_SPAN}\s+(?:before|outside|at)\b)",
        _FLAGS,
    ),
    re.compile(
        r"(?P<words>\b(?:missing|forgotten|forgot|lacks?|lost)\s+(?:the\s+|an?\s+|its\s+|to\s+)?(?:\w+\s+)?"
        r"(?:`(?:return|not|break|await|else|continue|self|raise|yield)`|return\s+statement"
        r"|(?:null|none|bounds?|empty|zero)[- ]check|guard\s+clause|early\s+return|break\b|await\b|negation))",
        _FLAGS,
    ),
)
_SPAN_ORDERS = (
    re.compile(
        rf"{_LEAD}(?P<words>{_SWITCH}e?p?\s+[^.;\n]{{0,40}}?{_SPAN}[^.;\n]{{0,24}}?\s(?:to|with|by|for|into|->|→)\s[^.;\n]{{0,16}}?{_SPAN})",
        _FLAGS,
    ),
    re.compile(
        rf"{_GERUND_LEAD}(?P<words>{_SWITCH}p?ing\s+[^.;\n]{{0,40}}?{_SPAN}[^.;\n]{{0,24}}?\s(?:to|with|by|for|into|->|→)\s[^.;\n]{{0,16}}?{_SPAN})",
        _FLAGS,
    ),
    re.compile(
        rf"{_LEAD}(?P<words>(?:use|write|call|return|pass|compare|check|test|try)\s+[^.;\n]{{0,24}}?{_SPAN}[^.;\n]{{0,24}}?\s(?:instead\s+of|rather\s+than|in\s+place\s+of|not)\s[^.;\n]{{0,16}}?{_SPAN})",
        _FLAGS,
    ),
)
# Not orders but a description of the edit: they count where one side holds what the patch takes out, and the other what
# it puts in its place.
_CONNECTIVE = re.compile(
    r"\b(?:instead\s+of|rather\s+than|in\s+place\s+of|where\s+it\s+should|should|must|needs\s+to|ought\s+to|has\s+to|but\s+not)\b"
    r"|(?:,|\bbut|\band)\s+not\b|→|->|=>|而不是|而非|应(?:该|当)?(?:是|为)|改成|改为|换成|换为|替换为|代替",
    _FLAGS,
)
_SWITCHED = re.compile(rf"\b{_SWITCH}\w{{0,8}}\s[^.;\n]{{0,40}}?\s(?P<to>to|with|by|for|into)\s", _FLAGS)
_COMMON_WORDS = frozenset(
    {
        "a",
        "all",
        "and",
        "any",
        "as",
        "at",
        "be",
        "but",
        "by",
        "call",
        "for",
        "from",
        "get",
        "has",
        "have",
        "if",
        "in",
        "is",
    }
    | {
        "it",
        "its",
        "key",
        "may",
        "no",
        "not",
        "of",
        "on",
        "one",
        "or",
        "return",
        "set",
        "so",
        "than",
        "that",
        "the",
        "this",
    }
    | {"to", "use", "value", "was", "when", "with"}
)
_STOPS = (". ", "\n", "; ", "。")
_TOLD = re.compile(
    r"\b(?P<words>(?:use|using|return|returning|write|writing|put|putting)\s+`(?P<span>[^`\n]{1,60})`)", _FLAGS
)
_HAVE = re.compile(
    rf"{_LEAD}(?P<words>(?:have|let|make|get)\s+{_DET}{{0,4}}{_MANY}{_NOUN}\s+(?:to\s+)?(?:return|raise|use|call|yield|compare|check"
    r"|test|be)\s+(?:`(?P<span>[^`\n]{1,60})`|(?P<word>\w{1,40}(?:\.\w{1,40})?)))",
    _FLAGS,
)
_CORRECT = re.compile(
    rf"{_LEAD}(?P<words>{_SWITCH}e?p?\s+[^.;`\n]{{0,40}}?\s(?:to|with|by|for|into)\s+`(?P<span>[^`\n]{{1,60}})`)",
    _FLAGS,
)
_CODE = re.compile(
    r"`(?P<words>(?P<span>[^`\n]{0,40}\b(?:return|raise|yield|await|not|break|continue|elif|except|del|assert)\b[^`\n]{0,40}))`"
)
_OFF_BY_ONE = re.compile(r"(?P<words>\boff[- ]by[- ]one\b|差一错误|多(?:算|取|减|加)了?一\b)", _FLAGS)
_LOOSEN = re.compile(
    r"(?P<words>\b(?:replace|change|make|turn)\s[^.;\n]{0,30}\b(?:comparison|inequality|bound)\b[^.;\n]{0,20}\b"
    r"(?:non-strict|strict|inclusive|exclusive)\b)",
    _FLAGS,
)
_COMPARE = re.compile(
    rf"(?P<words>\b(?:comparison|condition|check|bound|inequality|operator)\b[^.;\n]{{0,30}}\b(?:should|must|needs\s+to|has\s+to)\s+(?:be|use)\s"
    rf"[^.;\n]{{0,16}}?{_OPERATOR_WORD})",
    _FLAGS,
)


def edit_leaks(statement: str, answer: Answer) -> Iterator[Leak]:
    """Orders to edit and descriptions of the edit in a statement."""
    for pattern in _NOUN_ORDERS:
        for match in pattern.finditer(statement):
            if not _DATA.match(statement[match.end() :].partition("\n")[0].lstrip()):
                yield _edit(match, "It says which edit to make.")
    for pattern in (*_SPAN_ORDERS, _COMPARE, _LOOSEN):
        for match in pattern.finditer(statement):
            if not _goes_on(statement, match.end()):
                yield _edit(match, "It says what to replace with what.")
    yield from _described(statement, answer)
    for pattern in (_TOLD, _CORRECT, _CODE, _HAVE):
        for match in pattern.finditer(statement):
            if _is_put_in(match["span"] or match.groupdict().get("word") or "", answer):
                yield _edit(match, "It names what the fix puts in.")
    numbers = any(
        token.isdigit() or token in ("<", "<=", ">", ">=") for token in answer.gone_tokens | answer.new_tokens
    )
    for match in _OFF_BY_ONE.finditer(statement) if numbers else ():
        yield _edit(match, "It names the mistake.")


def _is_put_in(piece: str, answer: Answer) -> bool:
    """Whether a piece of code stands in what the patch adds, with something that was not there before."""
    told = {token.text for token in tokens_of(piece) if not token.text.isdigit()} - _MARKS
    return bool(told & answer.new_tokens) and any(piece in line for line in answer.added)


def _goes_on(statement: str, position: int) -> bool:
    """Whether a step of a recipe to see the bug follows, or the order is about data: then it is no order to edit."""
    rest = re.split(r"[.;\n]", statement[position:], maxsplit=1)[0]
    steps = (
        r"\W{0,4}(?:and|then|to\s+see)\s+(?:then\s+)?"
        r"(?:run|call|parse|render|see|look|observe|open|print|you|it\s|the\s|check)"
    )
    return bool(re.match(steps, rest, re.IGNORECASE) or _DATA.match(rest.lstrip("`'\" ")))


def _described(statement: str, answer: Answer) -> Iterator[Leak]:
    """Places that name what goes and what comes, a few words around "instead of", "should be", "not" and the like."""
    joints = [match.span() for match in _CONNECTIVE.finditer(statement)]
    joints += [match.span("to") for match in _SWITCHED.finditer(statement)]
    for start, end in joints:
        head = max(start - 48, *(statement.rfind(stop, 0, start) + 1 for stop in _STOPS))
        tail = min(end + 32, *(at for at in (statement.find(stop, end) for stop in _STOPS) if at >= 0), len(statement))
        chinese = re.search(r"[\u4e00-\u9fff]", statement[head:tail]) is not None
        left, right = _near(statement[head:start], chinese), _near(statement[end:tail], chinese)
        gone, new = answer.gone_tokens, answer.new_tokens
        if (left & gone and right & new) or (left & new and right & gone):
            why = "It names what the fix takes out and what it puts in its place."
            words = statement[head:tail]
            yield Leak(kind="edit", start=head, end=tail, words=words, matches=words.strip(), why=why)


def _near(piece: str, chinese: bool) -> set[str]:
    """The tokens of a piece that may stand for code: operators, words that are no English ones (of a Chinese text every
    English word is code), and what is quoted as code. Numbers are left out: they are values more often than code."""
    quoted = {token.text for span in re.findall(r"`([^`]+)`", piece) for token in tokens_of(span)}
    plain = {token.text for token in tokens_of(piece)} - (frozenset() if chinese else _COMMON_WORDS)
    return {text for text in plain | quoted if not text[0].isdigit() and text not in _MARKS}


def _edit(match: "re.Match[str]", why: str) -> Leak:
    start, end = match.span("words")
    words = match["words"]
    return Leak(kind="edit", start=start, end=end, words=words, matches=words.strip(), why=why)
