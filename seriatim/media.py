"""Media: what a message carries besides its text, and what it is called where only text goes."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve, field, frozen

from seriatim.errors import InvalidInputError
from seriatim.events import SAFE_INTEGER_MAX, Data, mend_text
from seriatim.limits import BLOB_BYTES_MAX, ID_CHARS_MAX, TEXT_BYTES_MAX

_TEXTS: Final = ("url", "blob", "name", "mime", "caption")


@frozen
class Media:
    """One attachment. ``kind``: photo, video, audio, voice, file, … in the platform's word.

    ``url``: where it can be had, for as long as the platform keeps it. ``data``: its content, for platforms whose links
    expire: it is durable before the message is acknowledged, and ``blob`` (SHA-256, hexadecimal) names it from then on.
    ``name``, ``mime``, ``size`` (bytes), ``caption``: as the platform says. Raises InvalidInputError.
    """

    kind: str
    url: str | None = None
    blob: str | None = None
    name: str | None = None
    mime: str | None = None
    size: int | None = None
    caption: str | None = None
    data: bytes | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if type(self.kind) is not str or not self.kind or len(self.kind) > ID_CHARS_MAX or not self.kind.isprintable():
            raise InvalidInputError("media.kind", "a short printable word is needed")
        for name in _TEXTS:
            value = getattr(self, name)
            if value is None:
                continue
            if type(value) is not str:
                raise InvalidInputError(f"media.{name}", f"text is needed, not {type(value).__name__}")
            if len(value) > (TEXT_BYTES_MAX // 4 if name == "caption" else ID_CHARS_MAX):
                raise InvalidInputError(f"media.{name}", "too long")
            object.__setattr__(self, name, mend_text(value)[0])
        if self.size is not None and (type(self.size) is not int or not 0 <= self.size <= SAFE_INTEGER_MAX):
            raise InvalidInputError("media.size", "a count of bytes is needed")
        if self.data is not None and (type(self.data) is not bytes or len(self.data) > BLOB_BYTES_MAX):
            raise InvalidInputError("media.data", f"at most {BLOB_BYTES_MAX} bytes are needed")

    def to_data(self) -> Data:
        """Plain JSON data without empty fields, and without ``data``."""
        told: Data = {"kind": self.kind}
        for name in (*_TEXTS, "size"):
            value = getattr(self, name)
            if value is not None:
                told[name] = value
        return told

    @classmethod
    def from_data(cls, data: Data) -> Media:
        """The inverse of ``to_data``; unknown keys are left aside."""
        known: dict[str, Any] = {name: data[name] for name in (*_TEXTS, "size") if name in data}
        return cls(data["kind"], **known)

    def kept_as(self, blob: str) -> Media:
        """The same with its content kept under that hash."""
        size = len(self.data) if self.size is None and self.data is not None else self.size
        return evolve(self, blob=blob, data=None, size=size)


def blobs_of(data: Data) -> list[str]:
    """The blobs that an accepted message's data, or a user message's, refers to."""
    return [media["blob"] for media in data.get("media", ()) if "blob" in media]
