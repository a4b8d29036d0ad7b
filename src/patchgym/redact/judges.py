"""The last word on what looks like a secret: whether it is one, or only stands for one.

Each judge is a function of what was found around an anchor. It looks at no more than the first ``_SEEN`` bytes of a
value, so that it takes no longer for a long one.
"""

import base64
import binascii
import re
from collections.abc import Mapping

from patchgym.redact.people import account, email, home, host, ip, ip6
from patchgym.redact.words import Hit, Judge, Words

_SEEN = 80
_JWT_NAMES = (b'"alg"', b'"typ"', b'"enc"', b'"kid"')
_JWT_SHOWN = b".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l"  # 1234567890, John Doe
_RUNS = re.compile(rb"[a-z]+|[A-Z]+|[0-9]+")
_WORDS = re.compile(rb"[a-z]+")
_CODE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]*)+")
_FIGURES = re.compile(rb"[-+]?[0-9][0-9_.,]*[a-z%]{0,3}")
_LOGIN = re.compile(rb"login(?:\s|\\[nt]){1,6}[^\s\"'\\]{1,64}(?:\s|\\[nt]){1,6}\Z")
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/]{16,}")
# Names of keys that open something; a bare "key" is a key of anything.
_KEY_NAME = re.compile(
    rb"(?:api|access|private|auth|secret|sign(?:ing)?|encrypt(?:ion)?|master|account|service|subscription|"
    rb"licen[cs]e|storage|consumer|client|app|application|deploy|webhook|admin|rest|shared|functions?|aes|hmac|jwt|"
    rb"cipher|session|login|security|management|ingest|write|integration|project|server|root|"
    rb"openai|anthropic|gemini|google|groq|mistral|deepseek|cohere|openrouter|azure|aws|stripe|sendgrid|mailgun|"
    rb"datadog|dd|algolia|maps|weather)[_.-]?\Z"
)
# What the name of a value is about where that is no secret: tokens of text, pages and grammars, and things about one.
_HARMLESS_HEAD = re.compile(
    rb"(?:\A|[_.-])(?:max|min|num|n|next|prev|page|paging|nextpage|next_page|continuation|sync|eos|bos|pad|unk|mask|sep|cls|special|total|prompt|"
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
    if _repeats(seen) or lowered.startswith(words.leads) or words.parts.search(lowered) or value.endswith(b"..."):
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


def unworded(hit: Hit, words: Words) -> bool:
    """The value has small letters, capitals and figures, and few small letters in a row, as no name has."""
    seen = hit.value[:_SEEN]
    runs = _RUNS.findall(seen)
    first = {run[0] >> 5 for run in runs}  # figures, capitals, small letters
    rows = sum(len(run) for run in runs if len(run) >= 3 and run[0] >= 0x61)
    return len(first) == 3 and rows <= 0.4 * len(seen) and _random(seen) and not _filler(hit.value, words)


def tail(hit: Hit, words: Words) -> bool:
    """What stands before the mark that ends the value looks drawn by chance."""
    return _random(hit.value) and not _filler(hit.value, words)


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
    return any(name in text for name in _JWT_NAMES) and _JWT_SHOWN not in hit.match.group()


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
    return _drawn(hit.value, words, least=16) or _basic(hit.value, words)


def basic(hit: Hit, words: Words) -> bool:
    """The base64 of a name and a password."""
    return _drawn(hit.value, words, least=24) or _basic(hit.value, words)


def _drawn(value: bytes, words: Words, *, least: int) -> bool:
    return len(value) >= least and _random(value) and not _placeholder(value, words)


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
    if not (bare or hit.match["close"]) or _called(hit):
        return False
    return _strong(value, words, bare=bare)


def flag(hit: Hit, words: Words) -> bool:
    """A password on a command line."""
    return _strong(hit.value, words, bare=True)


def netrc(hit: Hit, words: Words) -> bool:
    """A password as ``.netrc`` files name it: behind a login."""
    lead = hit.data[max(0, hit.anchor - 100) : hit.anchor]
    return _LOGIN.search(lead) is not None and _strong(hit.value, words, bare=True)


def _strong(value: bytes, words: Words, *, bare: bool) -> bool:
    """Whether a value can be somebody's password: no word, no placeholder, no code, no number."""
    if len(value) < 6 or _placeholder(value, words) or _FIGURES.fullmatch(value[:_SEEN]):
        return False
    if _CODE.fullmatch(value[:_SEEN]) and not _random(value):
        return False
    kinds = _RUNS.sub(lambda run: b"a" if run[0][0] >= 0x61 else b"A" if run[0][0] >= 0x41 else b"0", value[:_SEEN])
    figures, letters = b"0" in kinds, b"a" in kinds or b"A" in kinds
    signs = any(byte not in b"aA0_-./:," for byte in kinds)
    if value.count(b":") > 2 or (bare and value.endswith((b":", b"?"))):  # a line of /etc/passwd; a prompt
        return False
    return letters and (figures or signs) and (not bare or figures or len(value) >= 8)


def secret(hit: Hit, words: Words) -> bool:
    """The value of something named a secret, a token or a key that opens something."""
    if not _named(hit):
        return False
    bare = hit.match["bare"] is not None
    if not (bare or hit.match["close"]) or _called(hit):
        return False
    value = hit.value
    if len(value) < (16 if bare else 12) or b"=" in value.rstrip(b"=") or b"://" in value[:_SEEN]:
        return False
    return _random(value) and not _placeholder(value, words) and not _CODE.fullmatch(value[:_SEEN])


def _called(hit: Hit) -> bool:
    """Whether the value is the name of a function that is called, or of a list that is looked into."""
    return hit.match["bare"] is not None and hit.data[hit.match.end() : hit.match.end() + 1] in (b"(", b"[")


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


JUDGES: Mapping[str, Judge] = {
    judge.__name__: judge
    for judge in (
        real,
        random,
        mixed_case,
        unworded,
        tail,
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
