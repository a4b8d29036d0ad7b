"""What a message holds: text, and what is no text."""

import base64
import binascii
from collections import Counter
from typing import Any

from patchgym.records import Attachment
from patchgym.traces.intake import Intake, text_of

_TEXT = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"})
_MEDIA = frozenset({"image", "image_url", "input_image", "file", "input_file", "document", "audio", "input_audio"})
_UNKNOWN = "application/octet-stream"


def text_and_more(content: object, intake: Intake, left_out: Counter[str]) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message's content, which is a string, a list of parts, or one part; and its attachments. Parts of
    kinds that nobody knows are counted in ``left_out``."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    attachments: list[Attachment] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, dict):
            left_out["parts_that_are_no_objects"] += 1
        elif isinstance(part.get("text"), str) and (part.get("type") or "text") in _TEXT:
            texts.append(part["text"])
        elif part.get("type") in _MEDIA:
            attachments.append(_attachment(part, intake))
        else:
            left_out[f"part_{text_of(part.get('type')) or 'without_type'}"] += 1
    return "\n".join(texts), tuple(attachments)


def _attachment(part: dict[str, Any], intake: Intake) -> Attachment:
    """An attachment of any of the usual shapes: a data URL, base64 beside its type, or a mere reference."""
    holder = next((part[key] for key in ("source", "image_url", "file", "input_audio") if key in part), part)
    if isinstance(holder, str):
        holder = {"url": holder}
    if not isinstance(holder, dict):
        holder = {}
    url = text_of(holder.get("url") or holder.get("file_data") or holder.get("data"))
    media_type = text_of(holder.get("media_type") or holder.get("mime") or part.get("mime")) or _UNKNOWN
    data: bytes | None = None
    if url.startswith("data:"):
        head, _, body = url.partition(",")
        media_type = head[5:].partition(";")[0] or media_type
        data = _decoded(body) if head.endswith(";base64") else body.encode()
    elif holder.get("data"):
        data = _decoded(url)
    return intake.attachment(media_type, data)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
