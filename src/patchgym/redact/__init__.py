"""Secrets and personal data, found in text and taken out of it.

``rules.toml`` says what they look like and ``judges.py`` what only looks so. ``find`` searches, in time that grows with
the text alone; ``Redactor`` replaces what is found by markers such as ``<redacted:github_token:1>``, the same one for
the same secret over a whole run.
"""

from patchgym.redact.known import Known
from patchgym.redact.redactor import Redactor
from patchgym.redact.scan import Found, find

__all__ = ["Found", "Known", "Redactor", "find"]
