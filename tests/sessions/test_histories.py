"""A SessionStore does what its model does, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim import store_calls
from seriatim.asking import QUESTIONS
from seriatim.batch import Batch
from tests.sessions.histories import OPERATIONS, run


def test_some_histories() -> None:
    """Random operations over reopens and crashes: answers, entries and transcripts are the model's."""
    done = run(0, 25)
    assert done.keys() >= {*OPERATIONS, "reopened", "killed before", "killed after", "killed between"}


def _forgets_flags(batch: Batch, m: Any) -> bool:
    """A suspension that is told, and not written."""
    return batch.state.bound is not None


def _takes_back_one(batch: Batch, m: Any) -> Any:
    """A rewind of one turn, whatever was asked."""
    return store_calls._rewind(batch, store_calls.Rewind(m.session, 1))


@pytest.mark.parametrize(
    ("question", "broken"), [(store_calls.Suspend, _forgets_flags), (store_calls.Rewind, _takes_back_one)]
)
def test_a_broken_store_is_found(question: type, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories are no idle run: a rule that does less than it says fails them."""
    monkeypatch.setitem(QUESTIONS, question, broken)
    with pytest.raises(AssertionError):
        run(0, 60)
