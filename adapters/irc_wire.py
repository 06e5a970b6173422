"""IRC's wire as pure functions: lines, tags, case folding, and how many bytes fit.

No I/O and no state. Lines are bytes of at most 512 including CR LF; tags (IRCv3) come before them and have a
budget of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from attrs import Factory, frozen

LINE_BYTES_MAX: Final = 512
"""One line with its CR LF and, when a server relays it, with the sender's full prefix (RFC 1459 §2.3)."""

CaseMapping = Literal["ascii", "rfc1459", "rfc1459-strict"]

_ASCII = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_FOLDS: Final[Mapping[str, dict[int, int]]] = {
    "ascii": _ASCII,
    "rfc1459-strict": _ASCII | {ord("["): ord("{"), ord("]"): ord("}"), ord("\\"): ord("|")},
    "rfc1459": _ASCII | {ord("["): ord("{"), ord("]"): ord("}"), ord("\\"): ord("|"), ord("~"): ord("^")},
}
_TAG_ESCAPES: Final = {":": ";", "s": " ", "r": "\r", "n": "\n"}
_TAG_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_BREAKS = re.compile("[\r\n]+")
_FORMATTING = re.compile(
    "\x03(?:[0-9]{1,2}(?:,[0-9]{1,2})?)?|\x04(?:[0-9a-fA-F]{6}(?:,[0-9a-fA-F]{6})?)?|[\x02\x0f\x11\x16\x1d-\x1f]"
)


@frozen
class Line:
    """One line as received: ``command`` in upper case, ``source`` the prefix without its colon ("" if none)."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = Factory(dict)

    @property
    def nick(self) -> str:
        """The source's nick (or the server's name)."""
        return self.source.partition("!")[0].partition("@")[0]

    def param(self, index: int) -> str:
        """The parameter at ``index``, or "" where the server left it out."""
        return self.params[index] if -len(self.params) <= index < len(self.params) else ""


def parse(raw: bytes) -> Line | None:
    """One line without its CR LF; None for an empty or meaningless one. Total: never raises."""
    text = decode(raw).strip("\r\n")
    tags: dict[str, str] = {}
    if text.startswith("@"):
        head, _, text = text[1:].partition(" ")
        tags = _tags(head)
    text = text.lstrip(" ")
    source = ""
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    middle, colon, trailing = (" " + text.lstrip(" ")).partition(" :")
    words = middle.split()
    if colon:
        words.append(trailing)
    if not middle.strip():
        return None
    return Line(words[0].upper(), tuple(words[1:]), source, tags)


def _tags(head: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in head.split(";") if item)
    return {key: _TAG_ESCAPE.sub(lambda m: _TAG_ESCAPES.get(m[1], m[1]), value) for key, _, value in pairs}


def decode(raw: bytes) -> str:
    """UTF-8, else Latin-1: old clients send it, and a line cut inside a character is still UTF-8.

    A line that isn't valid but holds a valid character beyond ASCII was UTF-8 that somebody cut by bytes;
    its broken character becomes U+FFFD instead of turning the whole line into mojibake.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        mended = raw.decode("utf-8", "replace")
        if any(char > "\x7f" and char != "\ufffd" for char in mended):
            return mended
        return raw.decode("latin-1")


def message(command: str, *params: str) -> bytes:
    """One line to send, with CR LF; the last parameter may hold spaces. No parameter can smuggle a second line."""
    *middle, last = (sanitise(param) for param in params)
    return " ".join([command, *middle, f":{last}"]).encode("utf-8", "replace") + b"\r\n"


def sanitise(text: str) -> str:
    """``text`` as one line: runs of CR and LF become a space, NUL and the CTCP mark vanish.

    A model's text must not become a second command or a CTCP request ("DCC SEND …") of ours.
    """
    return _BREAKS.sub(" ", text).replace("\0", "").replace("\x01", "")


def plain(text: str) -> str:
    """``text`` without mIRC colours and styles, which are noise to everybody but an IRC client."""
    return _FORMATTING.sub("", text)


def fold(name: str, mapping: CaseMapping) -> str:
    """``name`` in the lower case of the server's CASEMAPPING: equal if and only if the server says so."""
    return name.translate(_FOLDS[mapping])


def case_mapping(text: str) -> CaseMapping:
    """A CASEMAPPING value; one we don't know folds ASCII only, so that no two names are taken for one."""
    lowered = text.lower()
    if lowered == "rfc1459":
        return "rfc1459"
    return "rfc1459-strict" if lowered in ("rfc1459-strict", "strict-rfc1459") else "ascii"


def room_for_text(target: str, *, nick_bytes: int, user_bytes: int, host_bytes: int) -> int:
    """UTF-8 bytes of text that reach ``target`` uncut: what 512 leaves beside the relayed line's own parts.

    ``:nick!user@host PRIVMSG target :text CR LF``, with our own nick, user and host. Never below 1.
    """
    frame = len(":!@ PRIVMSG  :\r\n") + nick_bytes + user_bytes + host_bytes
    return max(1, LINE_BYTES_MAX - frame - len(target.encode("utf-8", "replace")))


def cut(text: str, bytes_max: int) -> list[str]:
    """``text`` in pieces of at most ``bytes_max`` UTF-8 bytes, never cut inside a character.

    A space in a piece's second half is where it ends; the line's end stands for that space (servers strip it).
    """
    pieces: list[str] = []
    while len(raw := text.encode("utf-8", "replace")) > bytes_max:
        head = raw[:bytes_max].decode("utf-8", "ignore") or text[0]
        space = head.rfind(" ")
        if text[len(head)] == " ":
            space = len(head)
        at_space = space > len(head) // 2
        pieces.append(head[:space] if at_space else head)
        text = text[space + 1 if at_space else len(head) :]
    return [*pieces, text] if text else pieces


def addressed_to(nick: str, text: str) -> str | None:
    """The rest of a line that begins with ``nick`` and ":" or "," (or "@nick"); None if it isn't so addressed."""
    lead = re.match(rf"@?{re.escape(nick)}[:,]\s*|@{re.escape(nick)}\s+", text, re.IGNORECASE)
    return text[lead.end() :] if lead else None


def epoch_ms(stamp: str) -> int | None:
    """A server-time tag ("2026-01-31T10:00:00.123Z") as epoch milliseconds; None if it isn't one."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return None if moment.tzinfo is None else round(moment.timestamp() * 1000)
