"""The contract of a store, as tests that run against any of them.

A store of your own proves itself like this, in a test module that pytest collects:

    from seriatim.testing.store_contract import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def world(self, tmp_path):
            return MyWorld(tmp_path)       # a StoreWorld: opens owners on one medium, crashes it, makes it fail

Each case is one claim of `seriatim.storage.contract`, told in its docstring. The claims of one guarantee stand together
in a class of their own, so that a part can be run alone: derive from `EraseClaims`, say, instead of all.
`seriatim.storage.memory` is the shortest example of a store that holds to all of them.
"""

from __future__ import annotations

from .blobs import BlobClaims
from .commits import GroupClaims, OnceClaims
from .damage import DamageClaims
from .erasing import EraseClaims
from .fences import BindingClaims, OwnerClaims
from .growth import GrowthClaims
from .keys import KeyClaims, WindowClaims
from .life import LifeClaims
from .logs import LogClaims
from .lossless import LosslessClaims
from .outcomes import OutcomeClaims
from .reading import IndexClaims, ReadingClaims
from .whole import StoreContract
from .world import (
    GOOD_DATA,
    IDLE,
    LANE,
    OTHER,
    SECOND,
    SESSION,
    StoreWorld,
    bad_data,
    born,
    commit,
    events,
    kinds,
    one,
    part,
    refusal,
)

__all__ = [
    "GOOD_DATA",
    "IDLE",
    "LANE",
    "OTHER",
    "SECOND",
    "SESSION",
    "BindingClaims",
    "BlobClaims",
    "DamageClaims",
    "EraseClaims",
    "GroupClaims",
    "GrowthClaims",
    "IndexClaims",
    "KeyClaims",
    "LifeClaims",
    "LogClaims",
    "LosslessClaims",
    "OnceClaims",
    "OutcomeClaims",
    "OwnerClaims",
    "ReadingClaims",
    "StoreContract",
    "StoreWorld",
    "WindowClaims",
    "bad_data",
    "born",
    "commit",
    "events",
    "kinds",
    "one",
    "part",
    "refusal",
]
