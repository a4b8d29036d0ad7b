"""The last word on what looks like a secret: whether it is one, or only stands for one.

Each judge is a function of what was found around an anchor. It looks at no more than the first ``_SEEN`` bytes of a
value, so that it takes no longer for a long one.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_SEEN = 80
_RUNS = re.compile(rb"[a-z]+|[A-Z]+|[0-9]+")
_WORDS = re.compile(rb"[a-z]+")
_CODE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]*)+")
_FIGURES = re.compile(rb"[-+]?[0-9][0-9_.,]*[a-z%]{0,3}")
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/]{16,}")
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Names of keys that open something; a bare "key" is a key of anything.
_KEY_NAME = re.compile(
    rb"(?:^|[_.-])?(?:api|access|private|auth|secret|sign(?:ing)?|encrypt(?:ion)?|master|account|service|subscription|"
    rb"licen[cs]e|storage|consumer|client|app|application|deploy|webhook|admin|rest|shared|functions?|aes|hmac|jwt|"
    rb"cipher|session|login|security|management|ingest|write|integration|project|server|root|"
    rb"openai|anthropic|gemini|google|groq|mistral|deepseek|cohere|openrouter|azure|aws|stripe|sendgrid|mailgun|"
    rb"datadog|dd|algolia|maps|weather)[_.-]?\Z"
)
# What the name of a value is about where that is no secret: tokens of text, pages and grammars, and things about one.
_HARMLESS_HEAD = re.compile(
    rb"(?:max|min|num|n|next|prev|page|paging|nextpage|next_page|continuation|sync|eos|bos|pad|unk|mask|sep|cls|special|total|prompt|"
    rb"completion|input|output|cached|public|pub|end|start|first|last|of|per|cancellation|cancel|idempotency|request|"
    rb"parse|lex|text|image|audio|added|ssh|host|primary|foreign|sort|partition|cache|not|no|is|has)[_.-]?\Z"
)
_HARMLESS_TAIL = re.compile(
    rb"[_.-]?(?:s|s_.*|ize\w*|ization|izer\w*|id|ids|names?|type|count|len|length|limit|file|files|path|url|uri|endpoint|dir|field|arn|ref|"
    rb"version|ttl|exp\w*|hash|sha\w*|digest|policy|prefix|suffix|format|label|placeholder|hint|usage|budget|index|"
    rb"provider|class|error|errors|help|title|message|text|required|enabled|manager|env|env_?var|var|store|rotation|"
    rb"algorithm|alg|at|date|time|created\w*|updated\w*|status|state|scope|scopes|source|kind|size|regex|pattern|"
    rb"_?id_?|fingerprint|thumbprint|selector|input|form|strength|reset\w*|vault|ring|word|words|board|code)\Z"
)


class Words:
    """The lists of ``rules.toml`` that say what only stands for something."""

    def __init__(
        self,
        placeholders: Mapping[str, Any],
        mail: Mapping[str, Any],
        hosts: Mapping[str, Any],
        home: Mapping[str, Any],
    ) -> None:
        self.parts = re.compile(b"|".join(re.escape(part.encode()) for part in placeholders["parts"]))
        self.words = frozenset(word.encode() for word in placeholders["words"])
        self.leads = tuple(lead.encode() for lead in placeholders["leads"])
        self.mail_accounts = frozenset(name.encode() for name in mail["accounts"])
        self.mail_domains = frozenset(name.encode() for name in mail["domains"])
        self.mail_tops = frozenset(name.encode() for name in [*mail["tops"], *mail["files"]])
        self.hosts = frozenset(name.encode() for name in hosts["known"])
        self.plain_hosts = tuple(b"." + name.encode() for name in hosts["plain"])
        self.accounts = frozenset(name.encode() for name in home["accounts"])
        self.routes = frozenset(name.encode() for name in home["routes"])


class Hit(NamedTuple):
    """What was found: the text, where the run before the anchor begins, where the anchor does, what follows it, and the
    value that would be replaced."""

    data: bytes
    start: int
    anchor: int
    match: re.Match[bytes]
    value: bytes


Judge = Callable[[Hit], bool]


def judged_by(judge: Callable[[Hit, Words], bool], words: Words) -> Judge:
    """A judge with its lists."""
    return lambda hit: judge(hit, words)


def _repeats(value: bytes) -> bool:
    return len(set(value)) <= 3


def _filler(value: bytes, words: Words) -> bool:
    """Whether a long random value is none: somebody typed it to show where one goes."""
    seen = value[:_SEEN]
    return len(set(seen)) <= 4 or words.parts.search(seen.lower()) is not None


def _placeholder(value: bytes, words: Words) -> bool:
    """Whether a value stands for another, or is nobody's: a name for it, a word that everybody takes, a template."""
    seen = value[:_SEEN]
    lowered = seen.lower()
    if _repeats(seen) or lowered.startswith(words.leads) or words.parts.search(lowered):
        return True
    if b"{" in seen or b"$(" in seen or b"%(" in seen:
        return True
    found = _WORDS.findall(lowered)
    return bool(found) and words.words.issuperset(found)


def _random(value: bytes) -> bool:
    """Whether a value looks drawn by chance: letters and figures that change places as no words do."""
    seen = value[:_SEEN]
    runs = _RUNS.findall(seen)
    size = sum(map(len, runs))
    figures = sum(len(run) for run in runs if run[0] < 0x3A)
    return 2 <= figures < size and len(runs) >= 0.3 * size and len(set(seen)) >= 8 and size >= 0.6 * len(seen)


def real(hit: Hit, words: Words) -> bool:
    """The value is no filler."""
    return not _filler(hit.match.group(), words)


def random(hit: Hit, words: Words) -> bool:
    """The value looks drawn by chance."""
    return _random(hit.value) and not _filler(hit.match.group(), words)


def mixed_case(hit: Hit, words: Words) -> bool:
    """The value has small and capital letters, which change places as in no name."""
    seen = hit.match.group()[:_SEEN]
    runs = _RUNS.findall(seen)
    capitals = sum(1 for run in runs if 0x41 <= run[0] < 0x5B)
    return capitals >= 3 and len(runs) >= 0.3 * len(seen) and len(set(seen)) >= 10 and not _filler(seen, words)


def key_body(hit: Hit, words: Words) -> bool:
    """There is a key between the lines that frame it."""
    runs = _BASE64_RUN.findall(hit.value[:4000])
    return sum(map(len, runs)) >= 40 and len(set(hit.value[:400])) >= 12 and not _filler(b"".join(runs), words)


def azure_signed(hit: Hit, words: Words) -> bool:
    """It is as long as keys of Azure that carry a signature: 32, 44, 52, 84 or 88 characters with their end."""
    size = len(hit.value)
    ends = hit.value.endswith(b"=")
    return size in ((44, 88) if ends else (52, 84)) and _random(hit.value)


def jwt(hit: Hit, words: Words) -> bool:
    """The head of the token is the head of a token, and the token is not the one that documentation shows."""
    head = hit.data[hit.anchor : hit.match.end()].partition(b".")[0][:400]
    try:
        text = base64.urlsafe_b64decode(head[: len(head) // 4 * 4])
    except (ValueError, binascii.Error):
        return False
    body = hit.match.group()
    return (
        b'"alg"' in text or b'"typ"' in text or b'"enc"' in text or b'"kid"' in text
    ) and b".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l" not in body


def discord(hit: Hit, words: Words) -> bool:
    """The first part is the number of an account in base64."""
    head = hit.data[hit.start : hit.anchor]
    try:
        return base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)).isdigit()
    except (ValueError, binascii.Error):
        return False


def url_password(hit: Hit, words: Words) -> bool:
    """A password in a URL that is no word which everybody takes."""
    return len(hit.value) >= 3 and not _placeholder(hit.value, words)


def header(hit: Hit, words: Words) -> bool:
    """Credentials in a header: random, or what Basic makes of a name and a password."""
    return not _placeholder(hit.value, words) and (
        (_random(hit.value) and len(hit.value) >= 16) or _basic(hit.value, words)
    )


def basic(hit: Hit, words: Words) -> bool:
    """The base64 of a name and a password."""
    return _basic(hit.value, words) or (
        _random(hit.value) and len(hit.value) >= 24 and not _placeholder(hit.value, words)
    )


def _basic(value: bytes, words: Words) -> bool:
    try:
        name, colon, password = base64.b64decode(value[:400] + b"=" * (-len(value[:400]) % 4)).partition(b":")
    except (ValueError, binascii.Error):
        return False
    return bool(name and colon and password) and password.isascii() and not _placeholder(password, words)


def cookie(hit: Hit, words: Words) -> bool:
    """A cookie that holds something drawn by chance."""
    pairs = (pair.partition(b"=")[2] for pair in hit.value[:2000].split(b";"))
    return any(len(value) >= 12 and _random(value) and not _placeholder(value, words) for value in pairs)


def password(hit: Hit, words: Words) -> bool:
    """The value of something named a password."""
    if not _named(hit):
        return False
    value = hit.value
    bare = hit.match["bare"] is not None
    if not bare and hit.match["close"] is None:
        return False
    return _strong(value, words, bare=bare)


def flag(hit: Hit, words: Words) -> bool:
    """A password on a command line."""
    return _strong(hit.value, words, bare=True)


def netrc(hit: Hit, words: Words) -> bool:
    """A password as ``.netrc`` files name it: behind a login."""
    lead = hit.data[max(0, hit.anchor - 100) : hit.anchor]
    return re.search(rb"login(?:\s|\\[nt]){1,6}[^\s\"'\\]{1,64}(?:\s|\\[nt]){1,6}\Z", lead) is not None and _strong(
        hit.value, words, bare=True
    )


def _strong(value: bytes, words: Words, *, bare: bool) -> bool:
    """Whether a value can be somebody's password: no word, no placeholder, no code, no number."""
    if len(value) < 6 or _placeholder(value, words) or _FIGURES.fullmatch(value[:_SEEN]):
        return False
    if _CODE.fullmatch(value[:_SEEN]) and not _random(value):
        return False
    kinds = _RUNS.sub(lambda run: b"a" if run[0][0] >= 0x61 else b"A" if run[0][0] >= 0x41 else b"0", value[:_SEEN])
    figures, letters = b"0" in kinds, b"a" in kinds or b"A" in kinds
    signs = any(byte not in b"aA0_-./:," for byte in kinds)
    if bare and value.endswith((b":", b"?", b"...")):
        return False
    return letters and (figures or signs) and (not bare or figures or len(value) >= 8)


def secret(hit: Hit, words: Words) -> bool:
    """The value of something named a secret, a token or a key that opens something."""
    if not _named(hit):
        return False
    bare = hit.match["bare"] is not None
    if not bare and hit.match["close"] is None:
        return False
    value = hit.value
    if len(value) < (16 if bare else 12) or b"=" in value.rstrip(b"=") or b"://" in value[:_SEEN]:
        return False
    return _random(value) and not _placeholder(value, words) and not _CODE.fullmatch(value[:_SEEN])


def _named(hit: Hit) -> bool:
    """Whether the name around the anchor is that of a secret, and not of something about one."""
    head = hit.data[hit.start : hit.anchor].lower()
    anchor = hit.data[hit.anchor : hit.match.start()].lower()
    tail = hit.match["tail"].lower()
    if not hit.match["op"] and not head.startswith(b"--"):  # after a space alone only what follows a flag is a value
        return False
    if (tail and _HARMLESS_TAIL.fullmatch(tail)) or (head and _HARMLESS_HEAD.search(head)):
        return False
    return anchor != b"key" or (bool(head) and _KEY_NAME.search(head) is not None)


def email(hit: Hit, words: Words) -> bool:
    """An address of somebody."""
    local = hit.data[hit.start : hit.anchor].lower()
    domain = hit.match.group().lower()
    if hit.data[hit.start - 1 : hit.start] == b":" and b"://" in hit.data[max(0, hit.start - 80) : hit.start]:
        return False  # the password of a URL, and its host
    if local in words.mail_accounts or domain in words.mail_domains or local.startswith(b".") or local.endswith(b"."):
        return False
    top = domain.rpartition(b".")[2]
    return top not in words.mail_tops and not domain.endswith((b".example.com", b".example.org", b".example.net"))


def ip(hit: Hit, words: Words) -> bool:
    """An address of a private network, and no version and no whole network."""
    value = hit.value
    lead = hit.data[max(0, hit.start - 12) : hit.start].lower()
    if lead.endswith(
        (
            b"==",
            b">=",
            b"<=",
            b"~=",
            b"!=",
            b"^",
            b"~",
            b"version ",
            b"version: ",
            b"version = ",
            b'version": "',
            b"version=",
        )
    ):
        return False
    following = hit.data[hit.match.end() : hit.match.end() + 1]
    if following == b"/" and value in (b"10.0.0.0", b"172.16.0.0", b"192.168.0.0", b"169.254.0.0", b"100.64.0.0"):
        return False
    if value == b"169.254.169.254":
        return False
    first, second = value.split(b".")[:2]
    return first != b"100" or 64 <= int(second) <= 127


def ip6(hit: Hit, words: Words) -> bool:
    """A unique local or link-local address, and no fingerprint."""
    try:
        address = ipaddress.IPv6Address(hit.value.decode("ascii"))
    except ValueError:
        return False
    return address.is_private or address.is_link_local


def host(hit: Hit, words: Words) -> bool:
    """A name of a private network: by its end alone where that is told by nothing else, else by what stands around it,
    because ``threading.local`` is no host."""
    name = hit.value.lower().strip(b"-.")
    if name in words.hosts or name.endswith(b".cluster.local") or name != hit.value.lower():
        return False
    previous = hit.data[hit.start - 1 : hit.start] if hit.start else b""
    following = hit.data[hit.match.end() : hit.match.end() + 1]
    if previous in (b"_", b"$", b"/") and not hit.data[max(0, hit.start - 3) : hit.start] == b"://":
        return False
    if any(not label or label.startswith(b"-") for label in name.split(b".")) or name.split(b".")[0] in (
        b"self",
        b"this",
        b"cls",
    ):
        return False
    if name.endswith(words.plain_hosts):
        return True
    labels = name.split(b".")
    digits = any(any(0x30 <= byte < 0x3A for byte in label) or b"-" in label for label in labels[:-1])
    lead = hit.data[max(0, hit.start - 24) : hit.start].lower()
    addressed = (
        previous == b"@"
        or lead.endswith(b"://")
        or (following == b":" and hit.data[hit.match.end() + 1 : hit.match.end() + 2].isdigit())
    )
    asked = (
        re.search(
            rb"(?:host|hostname|server|ssh|ping|curl|dig|nslookup|telnet|domain|node)(?:[\"']?[ =:]{1,3}[\"']?)\Z", lead
        )
        is not None
    )
    module = re.search(rb"(?:import|from|package|using)[ \t]+\Z", lead) is not None
    return not module and (digits or addressed or asked or len(labels) >= 4)


def home(hit: Hit, words: Words) -> bool:
    """The folder of a person, and no folder or page that is called so."""
    value = hit.value.lower()
    data, at = hit.data, hit.anchor
    previous = data[at - 1 : at] if at else b""
    if previous and (previous.isalnum() or previous in b"_.~}$-)"):
        lead = data[max(0, at - 12) : at]
        if not lead.endswith(
            (b"/mnt", b"/export", b"/nfs", b"/data", b"/var", b"/net", b"/mnt/c", b"/mnt/d")
        ) and not re.search(
            rb"(?:\A|[^A-Za-z0-9_/.])/[a-z]\Z|\\[nrt]\Z|%[0-9A-F]{2}\Z|=[0-9A-F]{2}\Z|\[[0-9;]{0,8}m\Z|(?:^|[^A-Za-z0-9])-[ILR]\Z",
            lead,
        ):
            return False
    return (
        value not in words.routes
        and not value.endswith((b".html", b".tsx", b".js", b".ts", b".py", b".php", b".vue", b".css"))
        and account(hit, words)
    )


def account(hit: Hit, words: Words) -> bool:
    """The name of a person's account, and none that images and runners have."""
    value = hit.value.lower()
    return value not in words.accounts and not value.isdigit() and not _UUID.fullmatch(value)


JUDGES: Mapping[str, Callable[[Hit, Words], bool]] = {
    judge.__name__: judge
    for judge in (
        real,
        random,
        mixed_case,
        key_body,
        azure_signed,
        jwt,
        discord,
        url_password,
        header,
        basic,
        cookie,
        password,
        flag,
        netrc,
        secret,
        email,
        ip,
        ip6,
        host,
        home,
        account,
    )
}
