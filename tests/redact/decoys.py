"""What looks like a secret and is none, as it stands in real logs and sources; made by a seed."""

import base64
import json
import random
import uuid
from collections.abc import Callable, Iterator

from tests.redact.shapes import ALNUM, BASE64, DIGITS, HEX, LOWER, made_of

_SOURCE = (
    "    token = request.headers.get('Authorization')\n",
    "password = os.environ['DB_PASSWORD']\n",
    "    self.password = password\n",
    "if token == expected_token:\n",
    "api_key: str | None = None,\n",
    "parser.add_argument('--token', help='The token to use')\n",
    "    secret_key = settings.SECRET_KEY\n",
    "tokens = tokenizer.encode(text)\n",
    "max_tokens: 4096\n",
    "for token in line.split():\n",
    "raise ValueError('password: must not be empty')\n",
    "    access_key=config.get('access_key'),\n",
    "const secret = process.env.JWT_SECRET;\n",
    'password = "${DB_PASSWORD}"\n',
    'token: "{{ vault_token }}"\n',
    "Authorization: Bearer $TOKEN\n",
    "Authorization: Bearer <token>\n",
    "Authorization: Bearer YOUR_API_KEY\n",
    "headers = {'Authorization': f'Bearer {self.token}'}\n",
    "export API_KEY=your-api-key-here\n",
    "postgres://user:password@localhost:5432/db\n",
    "postgresql://postgres:postgres@127.0.0.1/test\n",
    "redis://:${REDIS_PASSWORD}@cache:6379/0\n",
    "https://{user}:{password}@host/\n",
    "Enter password: \n",
    "password: ********\n",
    "PASSWORD=changeme\n",
    "password='test'\n",
    '{"username": "admin", "password": "admin"}\n',
    "secret_name: my-app-secret\n",
    "secretKeyRef:\n  name: db-credentials\n  key: password\n",
    "token_type: bearer\n",
    'type="password" name="password" id="password-field"\n',
    "def get_token(self, token_id: int) -> Token:\n",
    "assert response.json()['token'] == 'test-token'\n",
    "from threading import local\n_state = threading.local()\n",
    "from werkzeug.local import Local\n",
    "import torch.distributed.internal\n",
    "self.internal = foo.internal\n",
    "settings.local.py\n",
    "config.local.json and .env.local\n",
    "C = A @ B.transpose(0, 1)\n",
    "y = x@w.shape\n",
    "@pytest.fixture\ndef key(): ...\n",
    "key = lambda item: item[1]\n",
    "sorted(rows, key=operator.itemgetter(2))\n",
    "primary_key=True, foreign_key='orders.id'\n",
    "cookie: CookieJar = session.cookies\n",
    "Set-Cookie: name=value\n",
    "git clone git@github.com:owner/repo.git\n",
    "sk-learn-contrib and sk-image-segmentation-tools\n",
    "hf_hub_download_with_retries_and_progress_bar\n",
    "npm_config_registry=https://registry.npmjs.org\n",
    "test_glpat_is_rejected_when_it_is_expired_already\n",
    'class="sk-folding-cube sk-cube1 sk-circle-bounce-delay"\n',
    "cookieConsent: accepted=true\n",
    "secret: arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db\n",
    "-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----\n",
    'if b"-----BEGIN PRIVATE KEY-----" in data:\n',
    "AKIAIOSFODNN7" + "EXAMPLE\n",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY\n",
    "GITHUB_TOKEN=ghp_" + "x" * 36 + "\n",
    "OPENAI_API_KEY=sk-..." + "\n",
    "sk-ant-api03-" + "x" * 40 + "\n",
    "token=<redacted:github_token:1>\n",
    "ghp_" + "1234567890abcdefghijklmnopqrstuvwxyz\n",
    "xoxb-your-token-here\n",
    "eyJhbGciOi... (truncated)\n",
)


def _hashes(draw: random.Random) -> Iterator[str]:
    sha1, sha256, md5 = made_of((HEX, 40)), made_of((HEX, 64)), made_of((HEX, 32))
    for _ in range(60):
        yield f"commit {sha1(draw)}\nMerge: {sha1(draw)[:7]} {sha1(draw)[:7]}\n"
        yield f"index {sha1(draw)[:10]}..{sha1(draw)[:10]} 100644\n"
        yield f"sha256:{sha256(draw)}\n"
    for _ in range(40):
        yield f"{md5(draw)}  dist/app-1.2.{draw.randint(0, 9)}.tar.gz\n"
        yield f'{{"digest": "{sha256(draw)}", "etag": "{md5(draw)}"}}\n'
        yield f'ETag: W/"{md5(draw)}"\n'


def _uuids(draw: random.Random) -> Iterator[str]:
    for _ in range(60):
        name = uuid.UUID(int=draw.getrandbits(128), version=4)
        yield f'{{"uuid":"{name}","parentUuid":"{uuid.UUID(int=draw.getrandbits(128))}"}}\n'
        yield f"/api/Users/{name}/orders\n"
        yield f"request-id: {name}\n"


def _locks(draw: random.Random) -> Iterator[str]:
    for _ in range(50):
        digest = base64.b64encode(draw.randbytes(64)).decode()
        yield f'      "integrity": "sha512-{digest}",\n'
        yield f"    --hash=sha256:{made_of((HEX, 64))(draw)} \\\n"
        yield f"lodash@4.17.{draw.randint(1, 30)}: resolved https://registry.npmjs.org/lodash/-/lodash-4.17.21.tgz\n"
        yield f"github.com/pkg/errors v0.9.{draw.randint(0, 9)} h1:{base64.b64encode(draw.randbytes(32)).decode()}\n"


def _blobs(draw: random.Random) -> Iterator[str]:
    for size in (90, 300, 3000):
        for _ in range(25):
            yield f"data:image/png;base64,{base64.b64encode(draw.randbytes(size)).decode()}\n"
            yield base64.urlsafe_b64encode(draw.randbytes(size)).decode() + "\n"
    yield base64.b64encode(draw.randbytes(100_000)).decode()
    yield draw.randbytes(50_000).hex()
    body = made_of((BASE64, 800))
    for _ in range(20):
        lines = body(draw)
        wrapped = "\n".join(lines[at : at + 64] for at in range(0, 800, 64))
        yield f"-----BEGIN CERTIFICATE-----\n{wrapped}\n-----END CERTIFICATE-----\n"
        yield f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB{made_of((BASE64, 300))(draw)} deploy\n"


def _addresses(draw: random.Random) -> Iterator[str]:
    for _ in range(30):

        def number() -> int:
            return draw.randint(1, 250)

        yield f"connected to 8.8.{number()}.{number()}:443\n"
        yield f"listening on 127.0.0.1:{8000 + number()}\n"
        yield f"package==10.{draw.randint(0, 9)}.{number()}.{draw.randint(0, 9)}\n"
        yield f"Chrome/1{draw.randint(10, 40)}.0.{number()}.{number()} Safari\n"
        yield f"mac {':'.join(made_of((HEX, 2))(draw) for _ in range(6))}\n"
        yield f"SHA1 Fingerprint={':'.join(made_of((HEX, 2))(draw).upper() for _ in range(20))}\n"
        domain = draw.choice(["example.com", "example.org", "mail.example.net"])
        yield f"{draw.choice(['jane', 'you', 'user', 'info'])}@{domain}\n"
        yield f"icon@{draw.randint(2, 3)}x.png and logo-{number()}@2x.webp\n"
    for name in ("runner", "ubuntu", "user", "node", "vscode", "jovyan", "app", "testbed"):
        yield f"/home/{name}/work/x.py\n"
        yield f"cd /home/{name}\n"
    for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"):
        yield f"allow {net};\n"
    yield "http://169.254.169.254/latest/meta-data/\n"
    yield "host.docker.internal:5432\n"
    yield "redis.default.svc.cluster.local:6379\n"
    yield 'fetch("https://acme.io/home/settings")\n'
    yield "src/home/index.tsx\n"


def _usage(draw: random.Random) -> Iterator[str]:
    for _ in range(40):

        def count() -> int:
            return draw.randint(1, 99999)

        yield json.dumps({"input_tokens": count(), "output_tokens": count(), "cache_read_input_tokens": count()}) + "\n"
        yield f"prompt_tokens={count()} completion_tokens={count()}\n"
        yield json.dumps({"id": f"toolu_01{made_of((ALNUM, 22))(draw)}", "type": "tool_use"}) + "\n"
        yield json.dumps({"tool_call_id": f"call_{made_of((ALNUM, 24))(draw)}"}) + "\n"
        yield (
            json.dumps({"id": f"msg_01{made_of((ALNUM, 22))(draw)}", "request_id": f"req_{made_of((ALNUM, 24))(draw)}"})
            + "\n"
        )


def _minified(draw: random.Random) -> Iterator[str]:
    letters = made_of((LOWER, 1))
    for _ in range(40):
        names = [letters(draw) for _ in range(8)]
        a, b, c, d, e, f, g, h = names
        yield (
            f"!function({a},{b}){{var {c}={a}.token||{b}.key;{d}.password={e};return {f}({g}[{c}],{h}.secret)}}"
            f'({letters(draw)},"{made_of((ALNUM, 6))(draw)}");\n'
        )


def _fixtures(draw: random.Random) -> Iterator[str]:
    for _ in range(30):
        number = draw.randint(1, 999)
        yield f'user = make_user(password="password{number}")\n'
        yield f'token = "test-token-{number}"\n'
        yield f"api_key='fake_key_{number}'\n"
        yield f'secret="dummy-secret-{number}"\n'
        yield f"PASSED tests/test_token.py::test_secret_{number} in 0.{number:03d}s\n"


_MAKERS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "hash": _hashes,
    "uuid": _uuids,
    "lock_file": _locks,
    "base64": _blobs,
    "address": _addresses,
    "usage": _usage,
    "minified": _minified,
    "fixture": _fixtures,
}


def decoys(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Every decoy, with what it is."""
    for text in _SOURCE:
        yield "source", text
        yield "source", json.dumps(text)
    for kind, make in _MAKERS.items():
        for text in make(draw):
            yield kind, text
    for _ in range(30):
        yield "number", f"order {made_of((DIGITS, 16))(draw)} of {made_of((DIGITS, 12))(draw)}\n"
