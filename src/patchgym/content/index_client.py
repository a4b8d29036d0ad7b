"""Asks package indexes through pip's own client, and runs nothing of what it finds. Stands alone: only the standard
library and the pip of the interpreter that starts it.

``pip download`` would build an sdist's metadata, and so run its code. This script uses the parts of pip below that: its
configuration (indexes, find-links, proxies, certificates, credentials), its link collector and its session. They are no
public interface; where a pip has them no longer, the script says so by its exit status and touches nothing.

``index_client.py list NAME`` prints one JSON object: ``files`` (each ``version``, ``filename``, ``url``, ``sha256``,
``requires_python``, ``yanked``, ``uploaded``) and ``skipped`` (what pip said of places that it could not read).
``index_client.py get URL FILE BYTES`` downloads one file of at most so many bytes.
"""

import importlib
import json
import logging
import os
import re
import sys
from typing import Any
from urllib.parse import urlsplit

NO_PIP, OTHER_PIP, REFUSED = 3, 4, 5
SECONDS = 20
JSON_PAGE = "application/vnd.pypi.simple.v1+json"


class Skipped(logging.Handler):
    """Keeps what pip's collector says of pages that it skips."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message, if it tells of a page that could not be read."""
        text = record.getMessage()
        if "skipping" in text.lower() or "cannot" in text.lower():
            self.lines.append(re.sub(r"://[^/@\s]*@", "://", text)[:300])


def session_of(pip: str) -> Any:
    """pip's session as ``pip download`` would open it, and the options that it was opened with."""
    command = importlib.import_module(f"{pip}.commands").create_command("download")
    options, _ = command.parse_args([])
    options.no_input = True
    return command._build_session(options, retries=1, timeout=SECONDS), options


def list_files(pip: str, name: str) -> dict[str, Any]:
    """Every file that the configured indexes and find-links have of a project."""
    collector = importlib.import_module(f"{pip}.index.collector")
    finding = importlib.import_module(f"{pip}.index.package_finder")
    preferences = importlib.import_module(f"{pip}.models.selection_prefs")
    skipped = Skipped()
    logger = logging.getLogger(f"{pip}.index.collector")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(skipped)
    logger.propagate = False
    session, options = session_of(pip)
    with session:
        finder = finding.PackageFinder.create(
            link_collector=collector.LinkCollector.create(session, options=options),
            selection_prefs=preferences.SelectionPreferences(allow_yanked=True, ignore_requires_python=True),
        )
        found = finder.find_all_candidates(name)
        times = upload_times(session, {str(each.link.comes_from) for each in found if each.link.comes_from})
    files = []
    for each in found:
        link = each.link
        known = getattr(link, "upload_time", None)
        files.append(
            {
                "version": str(each.version),
                "filename": link.filename,
                "url": link.url_without_fragment,
                "sha256": link.hash if link.hash_name == "sha256" else None,
                "requires_python": link.requires_python,
                "yanked": bool(link.is_yanked),
                "uploaded": known.isoformat() if known else times.get(link.filename),
            }
        )
    return {"files": files, "skipped": skipped.lines}


def upload_times(session: Any, pages: Any) -> dict[str, str]:
    """When each file was uploaded, by its name, from the pages that tell it (older releases of pip drop it)."""
    times: dict[str, str] = {}
    for page in sorted(pages):
        if urlsplit(page).scheme not in ("http", "https"):
            continue
        answer = session.get(page, headers={"Accept": f"{JSON_PAGE}, text/html; q=0.1"})
        if answer.status_code == 200 and answer.headers.get("Content-Type", "").startswith(JSON_PAGE):
            for entry in answer.json().get("files", []):
                if entry.get("upload-time"):
                    times[entry["filename"]] = entry["upload-time"]
    return times


def download(pip: str, url: str, path: str, most: int) -> None:
    """Write what ``url`` has to ``path``; ends with ``REFUSED`` where that is an error or too large."""
    session, _ = session_of(pip)
    with session, open(path, "wb") as out:
        answer = session.get(url, headers={"Accept-Encoding": "identity"}, stream=True)
        if answer.status_code != 200:
            sys.stderr.write(f"The index answered {answer.status_code} {answer.reason}.\n")
            sys.exit(REFUSED)
        left = most
        for chunk in answer.iter_content(1 << 16):
            left -= len(chunk)
            if left < 0:
                sys.stderr.write(f"The file is larger than {most} bytes.\n")
                sys.exit(REFUSED)
            out.write(chunk)


def main(arguments: list[str]) -> int:
    """Do what the command line says and return the exit status."""
    try:
        pip = importlib.import_module("pip")
    except ImportError:
        return NO_PIP
    inside = "pip._internal"
    try:
        vendored = importlib.import_module("pip._vendor.requests")
        session_of(inside)[0].close()
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        sys.stderr.write(f"pip {pip.__version__}: {error}\n")
        return OTHER_PIP
    problems = importlib.import_module(f"{inside}.exceptions").PipError
    try:
        if arguments[0] == "list":
            json.dump(list_files(inside, arguments[1]), sys.stdout)
        else:
            download(inside, arguments[1], arguments[2], int(arguments[3]))
    except (AttributeError, TypeError) as error:
        sys.stderr.write(f"pip {pip.__version__}: {error}\n")
        return OTHER_PIP
    except (problems, vendored.exceptions.RequestException, OSError) as error:
        sys.stderr.write(f"{error}\n"[:500])
        return REFUSED
    return 0


if __name__ == "__main__":
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    sys.exit(main(sys.argv[1:]))
