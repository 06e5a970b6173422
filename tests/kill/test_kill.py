"""The SIGKILL harness finds nothing in the gateway, and finds what is planted."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from seriatim.outbox import RECOVERED_NOTICE
from seriatim.recovery import GIVEN_UP_TEXT
from seriatim.storage.contract import Balance
from tests.kill.harness import KINDS, Kill, plan, run
from tests.kill.judge import Logs, Post, Said, Verdict, World, judge
from tests.kill.process import Armed


@pytest.mark.slow
def test_a_gateway_that_is_killed_again_and_again_loses_nothing() -> None:
    """Nine kills of every kind: nothing lost, no unmarked repeat, no break of order, law 1 after each kill."""
    report = run(kills=9, seed=1)
    assert report.verdict.findings == []
    assert report.kills == 9
    assert report.verdict.sent == report.verdict.accepted > 0


@pytest.mark.slow
def test_a_reply_is_not_given_up_because_the_process_died_before_each_send() -> None:
    """Killed six times where a reply is about to leave: it leaves at the seventh start."""
    report = run([Kill("reply durable, unsent", Armed("reply-unsent"))] * 6, seed=1)
    assert report.verdict.findings == []
    assert report.reached == {"reply-unsent": 6}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sin", "shown"), [("ack-first", "lost"), ("strip-mark", "unmarked_repeats"), ("post-twice", "unmarked_repeats")]
)
def test_a_gateway_that_breaks_a_law_is_found_out(sin: str, shown: str) -> None:
    """Acks before the commit, repeats without the notice, double sends: the harness sees each."""
    assert any(run(kills=6, seed=seed, sin=sin).verdict.figures()[shown] for seed in (4, 5, 6))


def test_a_plan_holds_every_kind_and_recovery_follows_an_open_turn() -> None:
    """Twelve kills hold each kind, and one during recovery comes right after one inside a turn."""
    kinds = [kill.kind for kill in plan(12, random.Random(3))]
    assert len(kinds) == 12
    assert set(kinds) == set(KINDS)
    assert kinds[kinds.index("recovery") - 1] == "mid-turn"


def world(*texts: str, said: str = "m1 m2", kind: str = "human") -> World:
    """A chat in which ``said`` was said, all of it acked, and ``texts`` were posted."""
    names = said.split()
    return World(
        said=[Said(name, "lane", "chat", kind) for name in names],
        acked=set(names),
        posts=[Post("chat", text) for text in texts],
    )


def logs(*answered: str, owed: tuple[str, ...] = (), **more: object) -> Logs:
    """Logs in which ``answered`` were accepted and answered, and ``owed`` was owed."""
    found = Logs(accepted=Counter(answered), answered=set(answered), owed=set(owed))
    for name, value in more.items():
        setattr(found, name, value)
    count = found.accepted.total()
    found.balance = Balance(count, len(found.answered), len(found.merged), len(found.dropped), 0)
    return found


def verdict(world: World, logs: Logs) -> Verdict:
    """Judge, with every reply owed unless said otherwise."""
    logs.owed = logs.owed or {post.text.removeprefix(RECOVERED_NOTICE) for post in world.posts}
    return judge(world, logs)


def test_replies_in_order_are_good() -> None:
    """Two messages, two replies."""
    assert verdict(world("re m1 1/1", "re m2 1/1"), logs("m1", "m2")).good


def test_a_message_without_reply_is_lost() -> None:
    """Its outcome in the logs doesn't help."""
    assert verdict(world("re m1 1/1"), logs("m1", "m2")).lost == 1


def test_a_reply_that_lacks_a_part_is_lost() -> None:
    """All of a reply has to arrive."""
    assert verdict(world("re m1 1/2", said="m1"), logs("m1")).lost == 1


def test_an_acked_message_that_no_log_knows_is_lost() -> None:
    """The platform won't give it again."""
    assert verdict(world("re m1 1/1"), logs("m1")).lost == 1


def test_a_dropped_message_is_lost_unless_its_chat_was_told() -> None:
    """A drop has a reason and a notice."""
    notice = GIVEN_UP_TEXT.format(times=3)
    given_up = logs(accepted=Counter(["m1"]), dropped={"m1": "interrupted"})
    assert verdict(world(said="m1"), given_up).lost == 1
    assert verdict(world(notice, said="m1"), given_up).good


def test_a_repeat_is_counted_by_whether_it_says_so() -> None:
    """With the notice it is fine, without it isn't."""
    again = verdict(world("re m1 1/1", RECOVERED_NOTICE + "re m1 1/1", said="m1"), logs("m1"))
    assert (again.repeated_marked, again.unmarked_repeats) == (1, 0)
    again = verdict(world("re m1 1/1", "re m1 1/1", said="m1"), logs("m1"))
    assert (again.repeated_marked, again.unmarked_repeats) == (0, 1)


def test_a_second_answer_in_other_words_is_a_repeat() -> None:
    """m1 alone, then again together with m2."""
    assert verdict(world("re m1 1/1", "re m1,m2 1/1"), logs("m1", "m2")).unmarked_repeats == 1


def test_a_message_accepted_twice_is_a_repeat() -> None:
    """A redelivery has to be recognised."""
    assert verdict(world("re m1 1/1", said="m1"), logs("m1", accepted=Counter({"m1": 2}))).unmarked_repeats == 1


def test_answers_out_of_order_are_seen() -> None:
    """Within a lane and kind, and within the parts of a reply."""
    assert verdict(world("re m2 1/1", "re m1 1/1"), logs("m1", "m2")).order_breaks == 1
    assert verdict(world("re m1 2/2", "re m1 1/2", said="m1"), logs("m1")).order_breaks >= 1


def test_what_no_commit_explains_is_seen() -> None:
    """Posts, turns and effects."""
    seen = world("re m1 1/1", said="m1")
    seen.effects.append("m1")
    seen.began.append(("session", 1))
    assert verdict(seen, logs("m1", owed=("another",))).unexplained == 3
