"""Old payloads, brought to the present form when they are read.

An event on disk never changes. Whoever changes what a type's data means gives the new form a version (``"v"`` in the
data: 2, 3, …; without it, it is 1) and adds here, for that type, the function that leads from the form before to it.
Readers see the newest form only: the stores call ``upcast`` where they decode, and nobody else needs to. A form that
older readers would misread raises the format of the file besides, so that they refuse it. The logs of each format that
was ever committed are kept in tests/golden; each opens and folds to what it did then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seriatim.errors import FormatUnsupportedError
from seriatim.events import Data

Upcaster = Callable[[Data], Data]
"""From a form of version v, without its ``"v"``, to one of version v + 1; it leaves the old data as it is."""

UPCASTERS: Final[dict[str, tuple[Upcaster, ...]]] = {}
"""By type: the first leads from version 1 to 2. No payload has changed so far."""

VERSION: Final = "v"


def upcast(kind: str, data: Data) -> Data:
    """The data in the newest form of its type. Raises FormatUnsupportedError for a form that only a newer one knows."""
    steps = UPCASTERS.get(kind, ())
    version = data.get(VERSION, 1)
    if not steps or version == len(steps) + 1:
        return data
    if type(version) is not int or not 1 <= version <= len(steps):
        raise FormatUnsupportedError(
            kind, "upgrade", f"has version {version!r}; this version knows up to {len(steps) + 1}"
        )
    told = {name: value for name, value in data.items() if name != VERSION}
    for step in steps[version - 1 :]:
        told = step(told)
    return {**told, VERSION: len(steps) + 1}
