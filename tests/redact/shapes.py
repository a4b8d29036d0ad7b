"""Values of the shapes that vendors document, made at run time: none of them is anybody's, and none stands here.

A shape is written as a list of parts: literal text, or an alphabet with a length. ``SHAPES`` were at hand when the
rules were written; ``HELD_OUT`` were written down after the rules, from other people's lists, and no rule was changed
for them.
"""

import base64
import json
import random
import string
from collections.abc import Callable

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
HEX = DIGITS + "abcdef"
ALNUM = UPPER + LOWER + DIGITS
BASE32 = UPPER + "234567"
URL64 = ALNUM + "-_"
BASE64 = ALNUM + "+/"
Shape = Callable[[random.Random], str]


def made_of(*parts: str | tuple[str, int]) -> Shape:
    """A shape of literal parts and of drawn ones."""

    def value(draw: random.Random) -> str:
        return "".join(
            part if isinstance(part, str) else "".join(draw.choice(part[0]) for _ in range(part[1])) for part in parts
        )

    return value


def one_of(*shapes: Shape) -> Shape:
    """Any of some shapes."""
    return lambda draw: draw.choice(shapes)(draw)


def jwt(draw: random.Random) -> str:
    """A signed token of somebody."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = {"alg": draw.choice(["HS256", "RS256", "ES256"]), "typ": "JWT"}
    body = {"sub": made_of((DIGITS, 9))(draw), "iss": "https://id.acme.io", "exp": draw.randint(10**9, 2 * 10**9)}
    return f"{part(head)}.{part(body)}.{made_of((URL64, draw.choice([43, 86])))(draw)}"


def pem(draw: random.Random) -> str:
    """A private key, in lines."""
    kind = draw.choice(["RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED "])
    body = made_of("MII", (BASE64, draw.choice([120, 800, 1600])))(draw)
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])


def typed_password(draw: random.Random) -> str:
    """A password as people make them up."""
    word = draw.choice(["Falcon", "tulip", "Quartz", "maple", "Orbit", "velvet"])
    return word + draw.choice("!#%?*") + made_of((DIGITS, 3))(draw) + draw.choice(["x", "Q", "zz", "K9"])


def person(draw: random.Random) -> str:
    """An account of a person."""
    first = draw.choice(["maria", "jonas", "wei", "fatima", "oleg", "priya", "tomas"])
    return first + draw.choice(["", ".", "_", "-"]) + draw.choice(["k", "lopez", "schmidt", "zhang", "novak", "iyer"])


def email(draw: random.Random) -> str:
    """An address of a person."""
    company = draw.choice(["acme", "initech", "umbrella", "globex"])
    return f"{person(draw)}@{company}.{draw.choice(['io', 'com', 'co.uk', 'dev'])}"


def private_ip(draw: random.Random) -> str:
    """An address of a private network."""

    def octet() -> str:
        return str(draw.randint(1, 254))

    return draw.choice(
        [
            f"10.{octet()}.{octet()}.{octet()}",
            f"192.168.{octet()}.{octet()}",
            f"172.{draw.randint(16, 31)}.{octet()}.{octet()}",
            f"fd{made_of((HEX, 2))(draw)}:{made_of((HEX, 4))(draw)}:{made_of((HEX, 4))(draw)}::{draw.randint(1, 99)}",
        ]
    )


def private_host(draw: random.Random) -> str:
    """A name of a private network."""
    name = draw.choice(["db", "build", "cache", "gw", "ci"]) + f"-{draw.randint(1, 40):02d}"
    return f"{name}.{draw.choice(['corp', 'eu.internal', 'lan', 'prod.local', 'intranet', 'acme.corp'])}"


SHAPES: dict[str, Shape] = {
    "aws_access_key": made_of("AKIA", (BASE32, 16)),
    "aws_temporary_key": made_of("ASIA", (BASE32, 16)),
    "google_api_key": made_of("AIza", (URL64, 35)),
    "google_client_secret": made_of("GOCSPX-", (URL64, 28)),
    "google_access_token": made_of("ya29.a0", (URL64, 160)),
    "azure_client_secret": made_of((ALNUM, 3), "8Q~", (ALNUM, 34)),
    "github_classic": one_of(*(made_of(f"gh{kind}_", (ALNUM, 36)) for kind in "pousr")),
    "github_fine_grained": made_of("github_pat_", (ALNUM, 22), "_", (ALNUM, 59)),
    "gitlab": made_of("glpat-", (URL64, 20)),
    "gitlab_routable": made_of("glpat-", (URL64, 27), ".01.", (LOWER + DIGITS, 9)),
    "slack_bot": made_of("xoxb-", (DIGITS, 12), "-", (DIGITS, 13), "-", (ALNUM, 24)),
    "slack_app": made_of("xapp-1-A", (UPPER + DIGITS, 10), "-", (DIGITS, 13), "-", (HEX, 64)),
    "slack_hook": made_of("https://hooks.slack.com/services/T", (UPPER, 8), "/B", (UPPER, 10), "/", (ALNUM, 24)),
    "stripe": one_of(made_of("sk_live_", (ALNUM, 24)), made_of("rk_live_51", (ALNUM, 97))),
    "openai_old": made_of("sk-", (ALNUM, 20), "T3Blbk" + "FJ", (ALNUM, 20)),
    "openai_project": made_of("sk-proj-", (URL64, 74), "T3Blbk" + "FJ", (URL64, 74)),
    "anthropic": made_of("sk-ant-api03-", (URL64, 93), "AA"),
    "huggingface": made_of("hf_", (UPPER + LOWER, 34)),
    "npm": made_of("npm_", (ALNUM, 36)),
    "pypi": made_of("pypi-AgEIcHlwaS5v" + "cmc", (URL64, 150)),
    "twilio": made_of("SK", (HEX, 32)),
    "sendgrid": made_of("SG.", (URL64, 22), ".", (URL64, 43)),
    "databricks": made_of("dapi", (HEX, 32)),
    "docker": made_of("dckr_pat_", (URL64, 27)),
    "telegram": made_of((DIGITS, 10), ":AA", (URL64, 33)),
    "groq": made_of("gsk_", (ALNUM, 52)),
    "digitalocean": made_of("dop_v1_", (HEX, 64)),
    "jwt": jwt,
    "private_key": pem,
    "email": email,
    "private_ip": private_ip,
    "private_host": private_host,
}
"""Shapes that bear their own marks, by name."""

NAMED: dict[str, Shape] = {
    "aws_secret": made_of((BASE64, 40)),
    "hex_secret": made_of((HEX, 32)),
    "random_token": made_of((ALNUM, 40)),
    "uuid_key": made_of((HEX, 8), "-", (HEX, 4), "-4", (HEX, 3), "-a", (HEX, 3), "-", (HEX, 12)),
}
"""Shapes that are told only by the name that they have."""

SEEN_LATER: dict[str, Shape] = {
    "anthropic_admin": made_of("sk-ant-admin01-", (URL64, 93), "AA"),
    "aws_other_prefix": made_of("A3T", (UPPER + DIGITS, 1), (BASE32, 16)),
    "artifactory_key": made_of("AKCp", (ALNUM, 69)),
    "artifactory_reference": made_of("cmVmd", (ALNUM, 59)),
    "authress": made_of(
        "sc_", (LOWER + DIGITS, 12), ".", (LOWER + DIGITS, 4), ".acc_", (LOWER + DIGITS, 16), ".", (URL64, 60)
    ),
    "beamer": made_of("b_", (LOWER + DIGITS, 44)),
    "clickhouse": made_of("4b1d", (ALNUM, 38)),
    "clojars": made_of("CLOJARS_", (HEX, 60)),
    "cloudflare_origin": made_of("v1.0-", (HEX, 24), "-", (HEX, 146)),
    "defined_networking": made_of("dnkey-", (UPPER + DIGITS, 26), "-", (UPPER + DIGITS, 52)),
    "digitalocean_refresh": made_of("dor_v1_", (HEX, 64)),
    "doppler": made_of("dp.pt.", (ALNUM, 43)),
    "dropbox": made_of("sl.", (URL64, 135)),
    "duffel": made_of("duffel_live_", (URL64, 43)),
    "dynatrace": made_of("dt0c01.", (UPPER + DIGITS, 24), ".", (UPPER + DIGITS, 64)),
    "easypost": made_of("EZAK", (ALNUM, 54)),
    "flutterwave": made_of("FLWSECK_TEST-", (HEX, 32), "-X"),
    "frameio": made_of("fio-u-", (URL64, 64)),
    "gitlab_runner": made_of("glrt-", (URL64, 20)),
    "gocardless": made_of("live_", (URL64, 40)),
    "grafana_service": made_of("glsa_", (ALNUM, 32), "_", (HEX, 8)),
    "harness": made_of("pat.", (ALNUM, 22), ".", (HEX, 24), ".", (ALNUM, 20)),
    "infracost": made_of("ico-", (ALNUM, 32)),
    "linear": made_of("lin_api_", (ALNUM, 40)),
    "maxmind": made_of((ALNUM, 6), "_", (ALNUM, 29), "_mmk"),
    "newrelic_user": made_of("NRAK-", (UPPER + DIGITS, 27)),
    "notion": made_of("ntn_", (DIGITS, 11), (ALNUM, 35)),
    "octopus": made_of("API-", (UPPER + DIGITS, 26)),
    "perplexity": made_of("pplx-", (ALNUM, 48)),
    "planetscale": made_of("pscale_tkn_", (URL64, 43)),
    "postman": made_of("PMAK-", (HEX, 24), "-", (HEX, 34)),
    "pulumi": made_of("pul-", (HEX, 40)),
    "readme": made_of("rdme_", (LOWER + DIGITS, 70)),
    "rubygems": made_of("rubygems_", (HEX, 48)),
    "scalingo": made_of("tk-us-", (URL64, 48)),
    "sentry_user": made_of("sntryu_", (HEX, 64)),
    "shippo": made_of("shippo_live_", (HEX, 40)),
    "shopify": made_of("shpat_", (HEX, 32)),
    "square": made_of("sq0atp-", (URL64, 22)),
    "sendinblue": made_of("xkeysib-", (HEX, 64), "-", (ALNUM, 16)),
    "typeform": made_of("tfp_", (ALNUM, 59)),
    "vault_batch": made_of("hvb.", (URL64, 140)),
    "vault_old": made_of("s.", (ALNUM, 24)),
    "yandex_key": made_of("AQVN", (URL64, 36)),
}
"""Shapes that bear marks, as gitleaks lists them: held out at first, when 26 of these 44 had rules."""

SEEN_LATER_NAMED: dict[str, tuple[str, Shape]] = {
    "cohere": ("CO_API_KEY", made_of((ALNUM, 40))),
    "coinbase": ("coinbase_access_token", made_of((LOWER + DIGITS, 64))),
    "confluent": ("CONFLUENT_SECRET", made_of((ALNUM, 64))),
    "datadog": ("DD_APPLICATION_KEY", made_of((HEX, 40))),
    "discord": ("discord_client_secret", made_of((URL64, 32))),
    "dropbox_app": ("dropbox_app_secret", made_of((LOWER + DIGITS, 15))),
    "fastly": ("FASTLY_API_TOKEN", made_of((URL64, 32))),
    "meraki": ("meraki_dashboard_api_key", made_of((HEX, 40))),
    "okta": ("okta_token", made_of("00", (URL64, 40))),
    "sumologic": ("SUMO_ACCESS_KEY", made_of((ALNUM, 64))),
    "travis": ("TRAVIS_TOKEN", made_of((ALNUM, 22))),
    "twitch": ("twitch_client_secret", made_of((LOWER + DIGITS, 30))),
    "twitter": ("TWITTER_ACCESS_TOKEN_SECRET", made_of((ALNUM, 45))),
    "zendesk": ("zendesk_secret_key", made_of((ALNUM, 40))),
}
"""Shapes that are told by a name alone, with the name that they usually have."""

HELD_OUT: dict[str, Shape] = {
    "apify": made_of("apify_api_", (ALNUM, 36)),
    "asana": made_of("2/", (DIGITS, 16), "/", (DIGITS, 16), ":", (HEX, 32)),
    "aws_appsync": made_of("da2-", (LOWER + DIGITS, 26)),
    "browserbase": made_of("bb_live_", (URL64, 27)),
    "cal": made_of("cal_live_", (HEX, 32)),
    "checkout": made_of("sk_sbox_", (LOWER + DIGITS, 28)),
    "deno": made_of("ddp_", (ALNUM, 36)),
    "google_oauth_refresh": made_of("1//0", (ALNUM, 1), (URL64, 90)),
    "helicone": made_of(
        "sk-helicone-",
        (LOWER + DIGITS, 7),
        "-",
        (LOWER + DIGITS, 7),
        "-",
        (LOWER + DIGITS, 7),
        "-",
        (LOWER + DIGITS, 7),
    ),
    "hubspot": made_of("pat-na1-", (HEX, 8), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 12)),
    "inngest": made_of("signkey-prod-", (HEX, 64)),
    "launchdarkly": made_of("sdk-", (HEX, 8), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 12)),
    "liveblocks": made_of("sk_prod_", (URL64, 64)),
    "llamaindex": made_of("llx-", (ALNUM, 48)),
    "logfire": made_of("pylf_v1_us_", (ALNUM, 43)),
    "ngrok": made_of((ALNUM, 27), "_", (ALNUM, 21)),
    "onfido": made_of("api_live.", (URL64, 11), ".", (URL64, 32)),
    "paddle": made_of("pdl_live_apikey_", (LOWER + DIGITS, 26), "_", (ALNUM, 22), "_", (ALNUM, 3)),
    "posthog": made_of("phx_", (ALNUM, 43)),
    "ramp": made_of("ramp_sec_", (ALNUM, 48)),
    "razorpay": made_of("rzp_live_", (ALNUM, 14)),
    "resend": made_of("re_", (ALNUM, 8), "_", (ALNUM, 24)),
    "rootly": made_of("rootly_", (HEX, 64)),
    "samsara": made_of("samsara_api_", (ALNUM, 30)),
    "stripe_ephemeral": made_of("rk_live_", (ALNUM, 99)),
    "trigger_dev": made_of("tr_prod_", (ALNUM, 24)),
    "valtown": made_of("vtwn_", (ALNUM, 27)),
    "xata": made_of("xau_", (ALNUM, 32)),
    "zuplo": made_of("zpka_", (HEX, 32), "_", (HEX, 8)),
    "github_app": made_of("ghs_", (ALNUM, 36)),
    "gitlab_trigger": made_of("glptt-", (HEX, 40)),
    "slack_config": made_of("xoxe.xoxp-1-", (ALNUM, 163)),
    "jwt_encrypted": made_of(
        "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.",
        (URL64, 340),
        ".",
        (URL64, 16),
        ".",
        (URL64, 60),
        ".",
        (URL64, 22),
    ),
    "email_subdomain": one_of(
        made_of("k.", (LOWER, 7), "+ci@eng.", (LOWER, 6), ".ai"),
        made_of((LOWER, 5), "_", (LOWER, 4), "@", (LOWER, 8), ".com.br"),
    ),
    "carrier_grade_address": lambda draw: f"100.{draw.randint(64, 127)}.{draw.randint(1, 250)}.{draw.randint(1, 250)}",
    "mac_host": made_of((UPPER, 1), (LOWER, 5), "s-MacBook-Pro.local"),
}
"""Shapes that bear marks, written down last; for half of the vendors there is no rule."""

HELD_OUT_NAMED: dict[str, tuple[str, Shape]] = {
    "mistral": ("MISTRAL_API_KEY", made_of((ALNUM, 32))),
    "algolia": ("ALGOLIA_ADMIN_KEY", made_of((HEX, 32))),
    "django": ("SECRET_KEY", made_of((ALNUM + "!@#%^*-_=+", 50))),
    "flask": ("app.secret_key", made_of((HEX, 48))),
    "rails": ("secret_key_base", made_of((HEX, 128))),
    "jenkins": ("JENKINS_API_TOKEN", made_of("11", (HEX, 32))),
    "laravel": ("APP_KEY", made_of("base64:", (BASE64, 43), "=")),
    "snyk": ("SNYK_TOKEN", made_of((HEX, 8), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 12))),
    "smtp": ("SMTP_PASSWORD", made_of((ALNUM, 20))),
    "redis": ("REDIS_PASSWORD", made_of((URL64, 32))),
    "azure_storage": ("AccountKey", made_of((BASE64, 86), "==")),
    "encryption": ("ENCRYPTION_KEY", made_of((BASE64, 43), "=")),
    "oauth": ("oauth_refresh_token", made_of((URL64, 64))),
}
"""Shapes that are told by a name alone."""
