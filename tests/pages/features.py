"""``docs/features-….md``, made from a list of ``tests/features``."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from tests.features.ledger import Feature, features

_HOW: Final = """\
Made from `tests/features/{name}.toml` by `python -m tests.pages`; a test holds them equal.
`python -m tests.features {name}` runs the tests that are named here, and fails for a row whose test did not run and
pass.
"""


def features_page(name: str) -> str:
    """The table of one list."""
    listed = features(name)
    later = sum(feature.later is not None for feature in listed.features)
    count = f"{len(listed.features)} features" + (f", {later} of them still to come" if later else "")
    parts = [f"# {listed.title}\n", f"{listed.intro}\n", f"{count}.\n", _HOW.format(name=name)]
    for group, rows in groupby(listed.features, key=lambda feature: feature.group):
        parts.append(f"## {group}\n\n| | feature | shown by |\n|---|---|---|\n{''.join(map(_row, rows))}")
    return "\n".join(parts)


def _row(feature: Feature) -> str:
    text = feature.text if feature.differs is None else f"{feature.text} *Here: {feature.differs}*"
    tests = ", ".join(f"`{re.split('::', test)[-1]}` ({test.split('::')[0]})" for test in feature.tests)
    if feature.later is not None:
        tests = f"later: {feature.later}"
    return f"| {feature.id} | {text} | {tests} |\n"
