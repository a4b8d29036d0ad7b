"""Every refusal, as a JSON problem (RFC 9457): what failed, why, and what to do about it."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from patchgym.errors import PatchgymError
from patchgym.records import Record


class Kind(NamedTuple):
    """A kind of refusal: its HTTP status, its title and the usual mend."""

    status: int
    title: str
    mend: str


KINDS: Mapping[str, Kind] = {
    "unauthorized": Kind(401, "No token, or an unknown one", "Send the header Authorization: Bearer TOKEN."),
    "other_origin": Kind(403, "The request came from another site's page", "Call from a program, not from a page."),
    "no_address": Kind(404, "There is no such address", "/openapi.json lists all of them."),
    "no_task": Kind(404, "There is no such task here", "GET /tasks lists the tasks that are served."),
    "no_session": Kind(404, "You have no such session", "POST /sessions opens one; idle ones are closed."),
    "no_method": Kind(405, "That address takes other methods", "/openapi.json says which."),
    "too_slow": Kind(408, "The body of the request did not come in time", "Send it whole, and at once."),
    "busy": Kind(409, "The session is at work on another request", "Wait for its answer: one request at a time."),
    "over": Kind(409, "The episode is over", "Ask for its grade, or close the session."),
    "closed": Kind(409, "The session was closed meanwhile", "Open another one."),
    "too_large": Kind(413, "The body of the request is too large", "Write large files in several steps."),
    "not_json": Kind(415, "The body is not said to be JSON", "Send the header Content-Type: application/json."),
    "wrong_host": Kind(421, "Without tokens, only this machine's own names are answered", "Use 127.0.0.1."),
    "invalid": Kind(422, "The request is not as it must be", "Compare it with /openapi.json."),
    "too_many": Kind(429, "Too much at once", "Close sessions that are done, and try again after Retry-After seconds."),
    "lost": Kind(503, "The sandbox was lost", "It was not the agent's doing: open another session."),
    "unavailable": Kind(503, "It cannot be done on this server now", "Its operator finds the reason in its log."),
    "closing": Kind(503, "The server is being shut down", "Try again once it is back."),
    "broken": Kind(500, "The server made a mistake", "Its operator finds the reason in its log."),
}


class Problem(Record):
    """Why a request was refused."""

    type: str
    """``urn:patchgym:`` and the name of the kind."""
    title: str
    """What failed."""
    status: int
    """The HTTP status."""
    detail: str
    """Why, in words; empty where there is no more to say."""
    mend: str
    """What to do about it."""


class Refused(PatchgymError):
    """A request is refused; ``kind`` is a name of ``KINDS``, ``retry_after`` whole seconds."""

    def __init__(self, kind: str, detail: str = "", *, mend: str = "", retry_after: int | None = None) -> None:
        found = KINDS[kind]
        super().__init__(found.title, why=detail, mend=mend or found.mend)
        self.kind, self.status, self.retry_after = kind, found.status, retry_after

    def response(self) -> Response:
        """The refusal as it goes over the wire."""
        problem = Problem(
            type=f"urn:patchgym:{self.kind}", title=self.what, status=self.status, detail=self.why, mend=self.mend
        )
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.kind == "unauthorized":
            headers["WWW-Authenticate"] = "Bearer"
        if self.kind in ("too_slow", "too_large"):  # what is left of the body is not waited for
            headers["Connection"] = "close"
        return Response(problem.model_dump_json(), self.status, headers=headers, media_type="application/problem+json")
