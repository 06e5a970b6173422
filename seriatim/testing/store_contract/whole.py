"""All claims in one class."""

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


class StoreContract(
    LogClaims,
    LosslessClaims,
    OnceClaims,
    GroupClaims,
    KeyClaims,
    WindowClaims,
    BindingClaims,
    OwnerClaims,
    ReadingClaims,
    IndexClaims,
    OutcomeClaims,
    EraseClaims,
    BlobClaims,
    GrowthClaims,
    DamageClaims,
    LifeClaims,
):
    """All claims. Give the subclass a fixture ``world``."""
