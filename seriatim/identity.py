"""One person, many names: what WhatsApp calls a number, and which names are known to mean the same.

A bridge gives one phone as ``+49 170 …``, ``49170…@s.whatsapp.net``, ``49170…:12@s.whatsapp.net`` (a device) or by a
LID, an id that hides the number until the bridge learns it. Everything here is total: an id of no known form is
handed back as it came, since a message must not fail for its sender's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import Factory, define

_SEPARATORS: Final = str.maketrans("", "", " -.()\u00a0")
_PHONE: Final = re.compile(r"\+?([0-9]{5,15})(?::[0-9]+)?")
"""E.164 has at most fifteen digits; shorter than five are service numbers at best."""
_PERSONS: Final = ("s.whatsapp.net", "c.us")


def canonical_whatsapp_identifier(identifier: str) -> str:
    """One form for all that WhatsApp calls an account: the phone's digits, a group's id, or ``…@lid``.

    Cuts ``@s.whatsapp.net``, ``@c.us``, ``@g.us`` and ``:device``. A LID keeps its ``@lid``: its digits are no
    phone's. Anything else (``status@broadcast``, a name) comes back unchanged but for outer blanks. Applying it
    twice changes nothing. Gateway seed §4, "Special Case".
    """
    whole = identifier.strip()
    name, _, server = whole.partition("@")
    if server == "g.us":
        return name or whole
    if server == "lid":
        return f"{name.partition(':')[0]}@lid"
    if server and server not in _PERSONS:
        return whole
    phone = _PHONE.fullmatch(name.translate(_SEPARATORS))
    if phone is not None:
        return phone[1]
    return (name.partition(":")[0] or whole) if server else whole


@define
class Aliases:
    """Which ids are known to mean the same account; grows as a bridge tells. One thread at a time.

    Groups of equal ids, whatever order and however circular the pairs come in. A group is called by its phone
    number where it has one, else by its shortest, then first id, so that all sides agree.
    """

    _groups: dict[str, set[str]] = Factory(dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Aliases:
        """The table that a list of pairs makes."""
        table = cls()
        for one, other in pairs:
            table.learn(one, other)
        return table

    def learn(self, one: str, other: str) -> tuple[str, ...]:
        """Take in that both ids mean one account.

        Gives the names under which the account was known before and no longer is: lanes of these are to be merged
        into the lane of its present name.
        """
        ids = canonical_whatsapp_identifier(one), canonical_whatsapp_identifier(other)
        before = {self.canonical(i) for i in ids}
        joined = set().union(*(self._groups.get(i, {i}) for i in ids))
        for member in joined:
            self._groups[member] = joined
        return tuple(sorted(before - {self.canonical(ids[0])}))

    def canonical(self, identifier: str) -> str:
        """The one name of the account that ``identifier`` means."""
        own = canonical_whatsapp_identifier(identifier)
        return min(self._groups.get(own, (own,)), key=alias_rank)

    def __len__(self) -> int:
        return len(self._groups)


def alias_rank(identifier: str) -> tuple[bool, int, str]:
    """The least of an account's ids is its name: a phone number before a LID, then the shorter one, then the first."""
    return identifier.endswith("@lid"), len(identifier), identifier
