"""The last word on personal data: whether an address, a host or a folder is somebody's, or only looks so."""

import ipaddress
import re

from patchgym.redact.words import Hit, Words

_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERSION_LEADS = (b"==", b">=", b"<=", b"~=", b"!=", b"^", b"~", b"version ", b"version: ", b"version = ", b"version=")
_QUOTED_VERSION = b'version": "'
_WHOLE_NETWORKS = frozenset({b"10.0.0.0", b"172.16.0.0", b"192.168.0.0", b"169.254.0.0", b"100.64.0.0"})
_CLOUD_METADATA = b"169.254.169.254"
_ASKED = re.compile(
    rb"(?:host|hostname|server|ssh|ping|curl|dig|nslookup|telnet|domain|node)[\"']?[ =:]{1,3}[\"']?\Z", re.IGNORECASE
)
_IMPORTED = re.compile(rb"(?:import|from|package|using)[ \t]{1,8}\Z")
_SELVES = frozenset({b"self", b"this", b"cls"})
_MOUNTS = (b"/mnt", b"/export", b"/nfs", b"/data", b"/var", b"/net")
# What may stand before an absolute path though it ends like a word: a drive, an escape, an option of a compiler.
_BEFORE_PATH = re.compile(
    rb"(?:(?:\A|[^A-Za-z0-9_/.])/[a-z]|/mnt/[a-z]|\\[nrt]|%[0-9A-F]{2}|=[0-9A-F]{2}|\[[0-9;]{0,8}m"
    rb"|(?:\A|[^A-Za-z0-9])-[ILR])\Z"
)
_IN_URL = re.compile(rb"://[^\s/@\"'<>]{0,64}:[^\s/@\"'<>]{0,120}\Z")
_PAGES = (b".html", b".htm", b".tsx", b".jsx", b".js", b".ts", b".py", b".php", b".vue", b".css")
_LEAD = 24


def email(hit: Hit, words: Words) -> bool:
    """An address of somebody: of no machine, not of documentation, and no part of a URL with a password."""
    data, start = hit.data, hit.start
    if _IN_URL.search(data, max(0, start - 200), start):
        return False
    local, domain = data[start : hit.anchor].lower(), hit.match.group().lower()
    if local in words.mail_accounts or domain in words.mail_domains or local.startswith(b".") or local.endswith(b"."):
        return False
    top = domain.rpartition(b".")[2]
    return top not in words.mail_tops and not domain.endswith((b".example.com", b".example.org", b".example.net"))


def ip(hit: Hit, words: Words) -> bool:
    """An address of a private network, and no version, no whole network and none that every machine of a cloud has."""
    data, value = hit.data, hit.value
    if data[max(0, hit.start - 12) : hit.start].lower().endswith((*_VERSION_LEADS, _QUOTED_VERSION)):
        return False
    end = hit.match.end()
    if value == _CLOUD_METADATA or (data[end : end + 1] == b"/" and value in _WHOLE_NETWORKS):
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
    data, start, end = hit.data, hit.start, hit.match.end()
    name = hit.value.lower()
    labels = name.split(b".")
    if name in words.hosts or name.endswith(b".cluster.local") or labels[0] in _SELVES:
        return False
    if any(not label or label.startswith(b"-") or label.endswith(b"-") for label in labels):
        return False
    lead = data[max(0, start - _LEAD) : start]
    url = lead.endswith(b"://")
    if lead.endswith((b"_", b"$", b"/")) and not url:
        return False
    if name.endswith(words.plain_hosts):
        return True
    if _IMPORTED.search(lead):
        return False
    named = any(b"-" in label or any(0x30 <= byte < 0x3A for byte in label) for label in labels[:-1])
    port = data[end : end + 1] == b":" and data[end + 1 : end + 2].isdigit()
    return named or url or port or lead.endswith(b"@") or len(labels) >= 4 or _ASKED.search(lead) is not None


def home(hit: Hit, words: Words) -> bool:
    """The folder of a person, and no folder or page of a site that is called so."""
    data, at, value = hit.data, hit.anchor, hit.value.lower()
    previous = data[at - 1 : at] if at else b""
    if previous and (previous.isalnum() or previous in b"_.~}$-)"):
        lead = data[max(0, at - 12) : at]
        if not lead.endswith(_MOUNTS) and not _BEFORE_PATH.search(lead):
            return False
    return value not in words.routes and not value.endswith(_PAGES) and account(hit, words)


def account(hit: Hit, words: Words) -> bool:
    """The name of a person's account, and none that images and runners have."""
    value = hit.value.lower()
    return value not in words.accounts and not value.isdigit() and not _UUID.fullmatch(value)
