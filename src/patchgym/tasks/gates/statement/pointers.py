"""Leaks that point: line numbers, commits, links to a change, and diffs."""

import re
from collections.abc import Iterator

from patchgym.tasks.gates.statement.answer import Answer
from patchgym.tasks.gates.statement.leak import Leak, LeakKind

_SUFFIX = r"(?:pyx?|pyi|c|h|cpp|js|ts|go|rs|java|rb|toml|cfg|txt|csv|json|xml|ya?ml|html?|md|rst|sql|log)"
_PATH = rf"(?<![\w./\\~-])[\w./\\~-]{{0,160}}[\w-]\.{_SUFFIX}"
_IN_FILE = re.compile(
    rf"""(?P<path>{_PATH})[`"')\]]{{0,3}}(?:[\s:,(]|\b(?:at|on|near|around|in|the)\b|第){{0,8}}?
    (?:\#?L|:|\bll?\.?\s{{0,3}}|\blines?\b\s{{0,3}}(?:no\.?|number|\#)?\s{{0,3}}|第\s{{0,3}})(?P<line>\d+)(?!\s{{0,3}}(?:个|次|项|列))""",
    re.VERBOSE | re.IGNORECASE,
)
_FILE_AFTER = re.compile(
    rf"""\s{{0,3}}(?:to|and|-|–|&|,)?\s{{0,3}}\d*\s{{0,3}}[,)]?\s{{0,3}}(?:of|in|from)\s{{1,3}}[`"']*(?P<path>{_PATH})"""
)
_LINE = re.compile(
    r"""(?<![\w-])(?:lines?|ln)(?:\s{1,3}(?:no\.?|number|numbers|\#))?[\s:#]*(?P<line>\d+)\b(?!\s{0,3}(?:characters?|bytes|of\s{1,3}\d))
    |(?<![\w`'"/\#])L(?P<short>\d{1,5})\b(?![\w'"]|\s(?:norm|cache|loss|regulari|distance))
    |\b(?P<nth>\d+)(?:st|nd|rd|th)\s{1,3}line\b
    |第\s{0,3}(?P<zh>[\d一二三四五六七八九十百]+)\s{0,3}(?:[-~到至]\s{0,3}\d+\s{0,3})?行""",
    re.VERBOSE | re.IGNORECASE,
)
# A position inside data, as parsers report it, or a place in text that is no source file.
_IN_DATA_AFTER = re.compile(
    r"""\s{0,3}[,:;)]?\s{0,3}(?:col(?:umn)?s?|char(?:acter)?s?|pos(?:ition)?|offset)\b|\s{0,3}[:,]\s{0,3}\d+\b
    |\s{0,3}(?:of|in|from)\s{1,3}(?:the\s{1,3}|my\s{1,3}|an?\s{1,3}|its\s{1,3})?(?:\w+\s{1,3})?
    (?:input|output|data|document|csv|json|xml|ya?ml|text|table|log|report|file|template|message|listing|response|string)\b
    |\s{0,3}(?:的)?(?:输入|输出|数据|文档|文本|表格|日志)|[^。；\n]{0,6}(?:解析错误|语法错误)""",
    re.VERBOSE | re.IGNORECASE,
)
_IN_DATA_BEFORE = re.compile(
    r"(?:input|output|csv|json|xml|ya?ml|command|document|data|parse error|syntax error|输入|文件|文档|数据)"
    r"[^.;\n。]{0,12}$",
    re.IGNORECASE,
)
_MESSAGE = re.compile(r"^\s{0,3}(?:[-*•]\s{1,3}\S+::|E\s{2,}|(?:[\w.]+\.)?\w*(?:Error|Exception|Warning|Failed)\b:)")
_HEX = re.compile(r"(?<![\w#\\/.%&+=-])(?P<sha>[0-9a-f]{7,40})(?![\w-]|\.\w)", re.IGNORECASE)
_HEX_SAID = re.compile(
    r"(?:commits?|sha1?|revisions?|rev|changesets?|fixed (?:in|by|with)|reverts?|cherry[- ]pick\w*"
    r"|introduced (?:in|by)|since|merged? as|at|提交|修订|版本|合入)[\s:`'\"(#@\[]*(?:hash|id|no\.?)?[\s:`'\"(#@\[]*$",
    re.IGNORECASE,
)
_HEX_DATA = re.compile(
    r"(?:md5|sha-?(?:1|224|256|384|512)|digest|checksum|crc\w*|etag|token|uuid|guid|colou?r|key|hex\w*|bytes?|0x|returns?|got"
    r"|expected|==|!=|摘要|校验和|十六进制)[^.;,\n]{0,32}$",
    re.IGNORECASE,
)
REFERENCE = re.compile(
    r"""(?:https?://|www\.)?(?<![\w.-])[\w.-]{1,80}\.[a-z]{2,12}/[^\s)\]>]{0,200}?/(?:-/)?
    (?:commits?|pulls?|pull-requests?|merge_requests|compare|changeset)/[^\s)\]>]{0,200}[^\s)\]>.,;]
    |https?://[^\s)\]>]{1,300}\.(?:patch|diff)\b
    |\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|implement(?:s|ed)?)\s{0,3}:?\s{1,3}(?:[\w.-]{1,60}/[\w.-]{1,60})?(?:\#|gh-)\d+
    |\b(?:PR|MR|pull\s{1,3}request|merge\s{1,3}request)s?\s{0,3}(?:no\.?\s{0,3})?[\#!]?\s{0,3}\d+\b
    |\bmerge\s{1,3}pull\s{1,3}request\b[^\n]*
    |(?:修复|解决|关闭)\s{0,3}(?:了)?\s{0,3}\#\d+
    |(?:合并请求|拉取请求)\s{0,3}[\#!]?\d+""",
    re.VERBOSE | re.IGNORECASE,
)
"""A link to a commit or pull request, or the number of a change that is said to mend it."""
_DIFF = re.compile(
    r"^(?:diff --git .*|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*|(?:---|\+\+\+) (?:[ab]/|/dev/null)\S*|Index: \S+"
    r"|```\s*(?:diff|patch)\b.*)$",
    re.MULTILINE,
)


def pointer_leaks(statement: str, answer: Answer) -> Iterator[Leak]:
    """Line numbers, commits, references to a change, and diffs in a statement."""
    yield from _line_numbers(statement, answer)
    yield from _commits(statement, answer)
    for match in REFERENCE.finditer(statement):
        yield _leak("reference", match, "a change", "It leads to the change that mends it.")
    for match in _DIFF.finditer(statement):
        yield _leak("diff", match, "a patch", "It is part of a patch.")


def _line_numbers(statement: str, answer: Answer) -> Iterator[Leak]:
    told: list[tuple[int, int]] = []
    for match in _IN_FILE.finditer(statement):
        told.append(match.span())
        if _is_key(match["path"], answer):
            yield _leak("line_number", match, match["path"], "It points into a file that the fix changes.")
    for match in _LINE.finditer(statement):
        if any(start < match.end() and match.start() < end for start, end in told):
            continue
        before = statement[: match.start()].rpartition("\n")[2]
        after = statement[match.end() :].partition("\n")[0]
        elsewhere = _FILE_AFTER.match(after)
        if elsewhere is not None and not _is_key(elsewhere["path"], answer):
            continue
        if elsewhere is None and (_IN_DATA_AFTER.match(after) or _IN_DATA_BEFORE.search(before)):
            continue
        if elsewhere is None and _MESSAGE.match(before):
            continue
        if match["short"] is not None and not _says_code(before):
            continue
        yield _leak("line_number", match, match[0].strip(), "It says at which line the fix is.")


def _says_code(before: str) -> bool:
    """Whether what stands before ``L42`` makes it a line number, not a name."""
    return bool(re.search(r"(?:\b(?:at|on|see|near|around|in|from|line)|[(\[:,-])\s*$", before, re.IGNORECASE))


def _is_key(path: str, answer: Answer) -> bool:
    """Whether a path in a statement may mean a file that the fix changes: the same, or the same but for leading
    folders, on either side."""
    name = path.replace("\\", "/").lstrip("./~")
    return any(key == name or key.endswith(f"/{name}") or name.endswith(f"/{key}") for key in answer.key_files)


def _commits(statement: str, answer: Answer) -> Iterator[Leak]:
    texts = (*answer.workspace.values(), *answer.hidden_sources.values())
    for match in _HEX.finditer(statement):
        sha = match["sha"].lower()
        known = any(commit.startswith(sha) for commit in answer.commits)
        if known or (_is_commit(statement, match) and not any(match["sha"] in text for text in texts)):
            yield _leak("commit", match, sha, "A commit's id leads to its change.")


def _is_commit(statement: str, match: "re.Match[str]") -> bool:
    """Whether hexadecimal digits are a commit's id, judged by what stands around them."""
    before = statement[max(0, match.start() - 40) : match.start()].rpartition("\n")[2]
    said = _HEX_SAID.search(before) is not None
    kinds = {char.isdigit() for char in match["sha"]}
    if len(kinds) == 1 and len(match["sha"]) < 40:  # a plain number, or a word such as "defaced"
        return said and re.search(r"commit|revision|changeset|提交|修订", before, re.IGNORECASE) is not None
    return said or not (_HEX_DATA.search(before) or _MESSAGE.match(_line_of(statement, match.start())))


def is_commit_at(line: str, sha: str) -> bool:
    """Whether ``sha``, hexadecimal digits somewhere in ``line``, is a commit's id."""
    return any(match["sha"] == sha and _is_commit(line, match) for match in _HEX.finditer(line))


def is_diff(text: str) -> bool:
    """Whether a text holds a line that only a patch has."""
    return _DIFF.search(text) is not None


def _line_of(statement: str, position: int) -> str:
    start = statement.rfind("\n", 0, position) + 1
    end = statement.find("\n", position)
    return statement[start : end if end >= 0 else len(statement)]


def _leak(kind: LeakKind, match: "re.Match[str]", matches: str, why: str) -> Leak:
    return Leak(kind=kind, start=match.start(), end=match.end(), words=match[0], matches=matches, why=why)
