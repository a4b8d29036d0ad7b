"""The labelled set: secrets in their contexts, and what only looks like them, made by a seed.

Prints it as JSON lines: ``text``, ``kind``, ``spans`` (from byte to byte; none for a decoy), ``held_out``.

    python -m tests.redact.labelled
"""

import base64
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

from tests.redact.decoys import decoys
from tests.redact.shapes import (
    ALNUM,
    HELD_OUT,
    HELD_OUT_NAMED,
    NAMED,
    SEEN_LATER,
    SEEN_LATER_NAMED,
    SHAPES,
    Shape,
    made_of,
    person,
    typed_password,
)

SEED = 20260101
_REPEATS = {"github_classic": 2, "email": 2, "private_ip": 2}
_PEOPLE = ("email", "private_ip", "private_host")


class Case(NamedTuple):
    """A text; where the secrets in it stand, in bytes; what they are."""

    text: str
    kind: str
    spans: tuple[tuple[int, int], ...]
    held_out: bool = False


def plain(text: str) -> str:
    """As it is."""
    return text


def escaped(text: str) -> str:
    """As it stands inside a JSON string."""
    return json.dumps(text)[1:-1]


def twice_escaped(text: str) -> str:
    """As it stands inside a JSON string inside of another."""
    return escaped(escaped(text))


class Context(NamedTuple):
    """What stands around a value, where ``{}`` is, and how all of that is written down inside of ``outer``."""

    template: str
    encode: Callable[[str], str] = plain
    outer: str = "{}"

    def case(self, value: str, kind: str, held_out: bool = False) -> Case:
        """The value in its context. Where it holds the marks \\x01 and \\x02, only what stands between is secret."""
        lead, mark, rest = value.partition("\x01")
        core, _, tail = rest.partition("\x02") if mark else (value, "", "")
        before, after = self.template.split("{}")
        opening, closing = self.outer.split("{}")
        head = opening + self.encode(before + (lead if mark else ""))
        secret = self.encode(core)
        text = head + secret + self.encode(tail + after) + closing
        start = len(head.encode())
        return Case(text, kind, ((start, start + len(secret.encode())),), held_out)


EVERYWHERE = (
    Context("export SERVICE_AUTH={}\n"),
    Context('    client = Client("{}", retries=3)\n'),
    Context("$ cat .env\nX={}\nDEBUG=1\n", escaped, '["stdout", "{}", 0]'),
    Context('config:\n["value","{}"]\n'),
    Context('line\n{}\nend "x"', twice_escaped, '["{}"]'),
    Context("diff --git a/c b/c\n-value: old\n+value: {}\n"),
    Context("remote: logged in with {} (read, write)\n"),
    Context("| name | `{}` | 2024-01-02 |\n"),
    Context("\x1b[32m{}\x1b[0m done\n"),
    Context("a,b,{},c\n"),
    Context("<entry>{}</entry>"),
    Context("GET /v1/items?limit=5&k={} HTTP/1.1\n"),
)
LINES = (
    Context("cat key\n{}\n"),
    Context("{}", escaped, '["service_account", "{}\\n"]'),
    Context("key: |\n{}\nnext: 1\n"),
    Context("KEY = '{}'\n", escaped),
    Context("out:\n{}\n", twice_escaped, '["{}"]'),
)
TALK = (
    Context("Author: Somebody <{}>\n"),
    Context("please ask {} about it\n"),
    Context("connect to {} failed: timed out\n"),
    Context("host={}\n"),
    Context("a\n{}\nb", escaped, '["{}"]'),
    Context('"from": "{}"'),
)
UNDER_A_NAME = (
    Context("AWS_SECRET_ACCESS_KEY={}\n"),
    Context('    api_key = "{}"\n'),
    Context("  client_secret: {}\n"),
    Context('"access_token": "{}", "expires_in": 3600'),
    Context('"auth_token":"{}"', escaped, '["{}"]'),
    Context("const API_SECRET = '{}';\n"),
    Context("curl -H 'X-Api-Key: {}' https://api.acme.io\n"),
    Context("https://api.acme.io/v1?api_key={}&page=2\n"),
    Context("tool --api-key {} run\n"),
    Context("+  private_token: '{}',\n"),
    Context("<apiKey>{}</apiKey>"),
)
PASSWORDS = (
    Context("DB_PASSWORD={}\n"),
    Context('    password="{}",\n'),
    Context("spring.datasource.password={}\n"),
    Context("  password: {}\n"),
    Context('"password": "{}"', escaped, '["{}"]'),
    Context("mysqldump --password={} shop\n"),
    Context("curl -u deploy:{} https://ci.acme.io\n"),
    Context("machine ci.acme.io login deploy password {}\n"),
    Context("postgresql://shop:{}@db7.acme.io:5432/shop\n"),
    Context("amqp://svc:{}@mq.acme.io/vhost\n", escaped, '["{}"]'),
)
HEADERS = (
    Context("Authorization: Bearer {}\n"),
    Context("'Authorization': 'token {}'\n"),
    Context('curl -H "Authorization: Bearer {}" https://api.acme.io', escaped, '["{}"]'),
    Context("Cookie: session={}\n"),
    Context("Set-Cookie: sid={}; Path=/; HttpOnly\n"),
    Context("Proxy-Authorization: Bearer {}\n"),
)
HOMES = (
    "/home/{}/work/app.py:12: error\n",
    "cd /Users/{}/Projects/shop && ls\n",
    "C:\\Users\\{}\\AppData\\Local\\Temp\n",
    'File "/home/{}/.venv/lib/python3.11/site.py", line 3\n',
    "file:///home/{}/notes.md\n",
    "/mnt/c/Users/{}/Desktop\n",
    "PATH=/usr/bin:/home/{}/bin\n",
)


def marked_cases(draw: random.Random, shapes: Mapping[str, Shape], held_out: bool = False) -> Iterator[Case]:
    """Shapes that bear their own marks, in some contexts."""
    for kind, shape in shapes.items():
        for context in EVERYWHERE[:6]:
            yield context.case(shape(draw), kind, held_out)


def assigned_cases(
    draw: random.Random, shapes: Mapping[str, tuple[str, Shape]], held_out: bool = False
) -> Iterator[Case]:
    """Shapes that a name tells, under that name."""
    for kind, (name, shape) in shapes.items():
        for template in (f"export {name}={{}}\n", f"  {name}: {{}}\n", f'    {name} = "{{}}"\n'):
            yield Context(template).case(shape(draw), kind, held_out)


def true_cases(draw: random.Random) -> Iterator[Case]:
    """Every shape that bears its own marks, in contexts."""
    for kind, shape in SHAPES.items():
        contexts = LINES if kind == "private_key" else TALK if kind in _PEOPLE else EVERYWHERE
        for context in contexts:
            for _ in range(_REPEATS.get(kind, 1)):
                yield context.case(_framed(shape(draw)), kind)


def _framed(value: str) -> str:
    """A private key with its body marked; a web hook with its last part. Anything else is secret as a whole."""
    if value.startswith("-----BEGIN "):
        first, *body, last = value.split("\n")
        return first + "\n\x01" + "\n".join(body) + "\x02\n" + last
    head, path, tail = value.partition("/services/")
    return f"{head}{path}\x01{tail}\x02" if path else value


def named_cases(draw: random.Random) -> Iterator[Case]:
    """What is told by its name alone, by a header, or by where it stands."""
    for kind, shape in NAMED.items():
        for context in UNDER_A_NAME:
            yield context.case(shape(draw), kind)
    for context in PASSWORDS:
        for _ in range(4):
            yield context.case(typed_password(draw).replace("#", "-").replace("?", "!"), "password")
    for context in HEADERS:
        for _ in range(3):
            yield context.case(made_of((ALNUM, 40))(draw), "header")
    for _ in range(6):
        pair = base64.b64encode(f"{person(draw)}:{typed_password(draw)}".encode()).decode()
        yield Context("Authorization: Basic {}\n").case(pair, "header")
    for template in HOMES:
        for encode in (plain, escaped):
            yield Context(template, encode).case(person(draw), "home_path")
    for _ in range(6):
        address = f"{person(draw)}@initech.com"
        yield Context("?mail={}&x=1").case(quote(address), "email")
    for kind in ("github_classic", "openai_project", "huggingface"):
        for _ in range(2):
            yield _wrapped(SHAPES[kind](draw), kind)


def _wrapped(value: str, kind: str) -> Case:
    """A value in quoted-printable mail, broken over two lines."""
    head = "Content-Transfer-Encoding: quoted-printable\n\nYour key=3D"
    broken = f"{value[:20]}=\n{value[20:]}"
    return Case(f"{head}{broken}\n", kind, ((len(head), len(head) + len(broken)),))


def labelled() -> list[Case]:
    """The whole set: always the same."""
    draw = random.Random(SEED)
    cases = [*true_cases(draw), *named_cases(draw), *marked_cases(draw, SEEN_LATER)]
    cases += assigned_cases(draw, SEEN_LATER_NAMED)
    draw = random.Random(SEED + 1)
    cases += [*marked_cases(draw, HELD_OUT, True), *assigned_cases(draw, HELD_OUT_NAMED, True)]
    cases += [Case(text, kind, ()) for kind, text in decoys(random.Random(SEED + 2))]
    return cases


def main() -> None:
    """Print the set."""
    for case in labelled():
        sys.stdout.write(json.dumps(case._asdict()) + "\n")


if __name__ == "__main__":
    main()
