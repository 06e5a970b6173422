"""Ids that mean the same person or chat, and what that makes of a lane's key.

A table for one gateway, filled from the log ``aliases`` and by what adapters tell. Lanes are named by one id of each
group: on WhatsApp by the phone number rather than the LID (all sides agree, in whatever order the pairs come); else by
the id that was told last as the new one. A pair that tells nothing new changes nothing, circular ones included.

Whether two ids are the same is the platform's word. A name that passes from one person to another (an IRC nick) must
never be told as an alias of anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final, Literal

from attrs import Factory, define, frozen

from seriatim.errors import InvalidInputError
from seriatim.events import Data, Event, LogId
from seriatim.identity import alias_rank, canonical_whatsapp_identifier
from seriatim.keys import key_parts, key_text
from seriatim.limits import ID_CHARS_MAX

ALIASES: Final = LogId("aliases")
"""The log that holds the table's events."""

PERSON_CHATS: Final = frozenset({"signal", "whatsapp"})
"""Platforms on which a direct chat has its other side's id."""

AliasKind = Literal["user", "chat"]
Learnt = Literal["learnt", "known", "reversed"]
"""What telling an alias has come to; "reversed": a chat's move is known the other way round, which stands."""
_Group = tuple[str, str, str, str]


@frozen
class Alias:
    """``old`` and ``new`` mean the same, for lanes of that platform, bot account and scope (guild, workspace).

    ``kind`` "user": a person. "chat": the platform has replaced the chat's id; what is owed goes to the new one.
    Raises InvalidInputError for ids that can't be told.
    """

    platform: str
    old: str
    new: str
    kind: AliasKind = "user"
    account: str = ""
    scope: str = ""

    def __attrs_post_init__(self) -> None:
        for name, told in (("platform", self.platform), ("old", self.old), ("new", self.new)):
            if type(told) is not str or not 0 < len(told) <= ID_CHARS_MAX or not _is_tellable(told):
                raise InvalidInputError(name, f"text of 1 to {ID_CHARS_MAX} characters is needed")
        if self.kind not in ("user", "chat"):
            raise InvalidInputError("kind", 'must be "user" or "chat"')

    def to_data(self) -> Data:
        """The data of its alias/learnt event."""
        data: Data = {"platform": self.platform, "kind": self.kind, "old": self.old, "new": self.new}
        if self.account:
            data["account"] = self.account
        if self.scope:
            data["scope"] = self.scope
        return data

    @classmethod
    def from_data(cls, data: Data) -> Alias:
        """The inverse of ``to_data``."""
        more: dict[str, Any] = {name: data[name] for name in ("account", "scope") if name in data}
        return cls(data["platform"], data["old"], data["new"], data["kind"], **more)

    @property
    def group(self) -> _Group:
        """Which ids its ids may be the same as."""
        return self.platform, self.account, self.scope, self.kind


def _is_tellable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


@define
class _Same:
    """Ids that mean one; ``name``: by which lanes are named."""

    ids: set[str]
    name: str


@define
class AliasTable:
    """All that is known. ``head``: events of its log. The gateway's loop only."""

    head: int = 0
    _groups: dict[_Group, dict[str, _Same]] = Factory(dict)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def apply(self, event: Event) -> None:
        """Take in an event of the log."""
        if event.type == "alias/learnt":
            self.learn(Alias.from_data(event.data))
        self.head = event.seq + 1

    def knows(self, alias: Alias) -> bool:
        """Whether the table says that both are the same already."""
        old, new = self._plain(alias, alias.old), self._plain(alias, alias.new)
        known = self._groups.get(alias.group, {}).get(old)
        return old == new or (known is not None and new in known.ids)

    def told_back(self, alias: Alias) -> bool:
        """Whether it tells a chat's move the other way round: what it calls the old id is the one in use."""
        old, new = self._plain(alias, alias.old), self._plain(alias, alias.new)
        return alias.kind == "chat" and old != new and self.knows(alias) and self._name(alias.group, old) == old

    def learn(self, alias: Alias) -> None:
        """Both are the same from now on."""
        if self.knows(alias):
            return
        group = self._groups.setdefault(alias.group, {})
        old, new = self._plain(alias, alias.old), self._plain(alias, alias.new)
        ids = {i for told in (old, new) for i in (group[told].ids if told in group else (told,))}
        if alias.platform == "whatsapp" and alias.kind == "user":
            name = min(ids, key=alias_rank)
        else:
            name = group[new].name if new in group else new
        same = _Same(ids, name)
        group.update(dict.fromkeys(ids, same))

    def replacements(self, lane: str) -> Mapping[str, str]:
        """Chat ids of the lane's platform, account and scope that have new ones, with these."""
        platform, _, scope, account, *_ = key_parts(lane)
        group = self._groups.get((platform, account, scope, "chat"), {})
        return {i: same.name for i, same in group.items() if i != same.name}

    def present(self, lane: str) -> str:
        """The key of the lane that messages of ``lane`` belong to now; the same if no alias concerns it."""
        platform, chat_type, scope, account, chat, thread, participant = key_parts(lane)
        names = self._named(platform, account, scope, chat_type, chat, participant)
        now = key_text(platform, chat_type, scope, account, names[0], thread, names[1])
        return lane if now == lane else now

    def variants(self, lane: str) -> Iterator[str]:
        """The other keys under which messages of this lane may have come in before."""
        platform, chat_type, scope, account, chat, thread, participant = key_parts(lane)
        chats = self._ids(platform, account, scope, "chat", chat)
        if chat_type == "dm" and platform in PERSON_CHATS:
            chats |= self._ids(platform, account, scope, "user", chat)
        for one, other in product(sorted(chats), sorted(self._ids(platform, account, scope, "user", participant))):
            key = key_text(platform, chat_type, scope, account, one, thread, other)
            if key != lane:
                yield key

    def chat(self, platform: str, account: str, scope: str, chat_id: str) -> str:
        """The chat's id as of now."""
        return self._name((platform, account, scope, "chat"), chat_id)

    def _named(
        self, platform: str, account: str, scope: str, chat_type: str, chat: str, participant: str
    ) -> tuple[str, str]:
        chat = self._name((platform, account, scope, "chat"), chat)
        users = (platform, account, scope, "user")
        if chat_type == "dm" and platform in PERSON_CHATS:
            chat = self._name(users, chat)
        return chat, self._name(users, participant)

    def _name(self, group: _Group, told: str) -> str:
        same = self._groups.get(group, {}).get(told)
        return told if same is None else same.name

    def _ids(self, platform: str, account: str, scope: str, kind: AliasKind, told: str) -> set[str]:
        same = self._groups.get((platform, account, scope, kind), {}).get(told)
        return {told} if same is None else set(same.ids)

    @staticmethod
    def _plain(alias: Alias, told: str) -> str:
        return canonical_whatsapp_identifier(told) if alias.platform == "whatsapp" else told
