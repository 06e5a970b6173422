"""Every bound in one place, each with its reason. Relations are asserted below.

What reaches a bound is refused with a typed error or a counted receipt; nothing is cut silently.
"""

from __future__ import annotations

from typing import Final

ID_CHARS_MAX: Final = 4096
"""One platform id or name; longer ones are an attack or a bug (Matrix allows 255 bytes)."""

MEDIA_MAX: Final = 16
"""Attachments of one message; platforms give at most ten in an album, and those one by one."""

NOTES_MAX: Final = 32
"""Edits that wait to be told to a lane's next turn; beyond it they are refused (notes full)."""

BUDGETS_MAX: Final = 100_000
"""People whose use is counted (some 300 bytes each, and 100 for each of their turns in the window)."""

QUEUE_LISTED_MAX: Final = 20
"""Waiting turns that a chat is shown; the rest is counted."""

MEDIA_WEIGHT: Final = 4400
"""What an attachment counts for among a commit's payload, so that a commit refers to no more blobs than it may."""

ALBUM_MS_MAX: Final = 10_000
"""The longest that a turn waits for the rest of an album."""

KEYS_REMEMBERED_MAX: Final = 2048
"""Lane keys whose canonical form is kept (some 500 bytes each); the least recently used go."""

TEXT_BYTES_MAX: Final = 256 * 1024
"""UTF-8 bytes of one inbound message; the largest real platform limit is 64 KiB."""

REPLY_BYTES_MAX: Final = 4 * 1024 * 1024
"""UTF-8 bytes of one reply; a larger one ends its turn as failed, with a small text."""

REPLY_PARTS_MAX: Final = 40
"""Platform messages that one reply may become; the rest is cut with a note (one reply, not a flood)."""

TOOL_RESULT_BYTES_MAX: Final = 512 * 1024
"""JSON bytes of one tool result as it is recorded; a longer one is recorded cut, with a note that says so."""

STEP_CALLS_MAX: Final = 64
"""Tool calls of one step: bounds its commit and the threads that it may start."""

DETAIL_CHARS_MAX: Final = 2000
"""What is kept of an error's text, or of a reply that broke off, in a turn's end."""

DELEGATIONS_MAX: Final = 16
"""Background work of one lane at a time; each may hold a thread."""

DELEGATION_OUTPUT_CHARS_MAX: Final = 64 * 1024
"""What a wake tells of background work's output; the rest is cut, with a note that says so."""

QUESTION_CHARS_MAX: Final = 2000
"""A question to a turn's people, or the name of background work: one message of a chat, not a document."""

PARTIAL_CHARS_MAX: Final = 256 * 1024
"""What is kept of the text that a running turn has shown, should it break off; the rest was seen and is gone."""

SPEAKER_CHARS_MAX: Final = 64
"""A sender's name in a prefix; longer names are cut with an ellipsis."""

PROMPT_LABEL_CHARS_MAX: Final = 240
"""A name, title or topic in the prompt; the seed's bound (gateway seed §9)."""

TITLE_CHARS_MAX: Final = 80
"""A conversation's title; longer ones are cut with an ellipsis."""

TITLES_MAX: Final = 50
"""Titles that a lane keeps; the conversations of older ones are still found by their ids."""

RESUME_LISTED_MAX: Final = 10
"""Conversations that /resume lists."""

COMPRESS_S_MAX: Final = 180.0
"""How long an agent may take for a summary, seconds; the turn that waits for it then goes on without."""

PREVIEW_CHARS_MAX: Final = 200
"""What an answer shows of a message that it speaks of."""

LOOKUP_EVENTS: Final = 512
"""Events of a lane log that are read at a time, from its end backwards, to find a message again."""

COMMIT_MESSAGES_MAX: Final = 256
"""Messages that one lane commit may decide: bounds the time until its first message is durable."""

COMMIT_BYTES_MAX: Final = 1024 * 1024
"""Payload after which a lane commit closes; a single larger message still gets a commit of its own."""

COMMIT_SESSIONS_MAX: Final = 2
"""Session logs that one commit may touch (an old and a new conversation)."""

STASH_MESSAGES_MAX: Final = 4096
"""Inbound messages that may wait in a lane for a commit in flight; beyond it they are refused."""

STASH_BYTES_MAX: Final = 16 * 1024 * 1024
"""Their payload."""

WAITING_MAX: Final = 10_000
"""Accepted, undecided messages of one lane; beyond it inbound is refused (queue full)."""

GROUP_COMMITS_MAX: Final = 512
"""Commits that the writer makes durable together: bounds how long the first of them waits."""

GROUP_COMMITS_HANDED: Final = 32
"""Commits that go to the writer before a pass of the lanes ends. In bits they were written in bits, and each group
costs a sync of its own. With 64 lanes 24 and 48 did as well; handing over every 28 activations cost 4-8 %."""

MAILBOX_MAX: Final = 4096
"""Data mail of one lane actor; runtime mail is exempt."""

RUNTIME_MAIL_AHEAD_MAX: Final = 256
"""Runtime messages that an actor serves in a row while data waits: no flood of timers keeps a stop from its turn."""

HELD_MAX: Final = 4096
"""Inbound mail held for one lane while it is read, fenced or put to rest."""

CRASHES_MAX: Final = 5
"""Restarts of one lane in close succession after which the lane is quarantined."""

CRASHES_FORGOTTEN_MS: Final = 600_000
"""After so long without one, earlier restarts don't count any more."""

RESTART_MS: Final = (10, 100, 1_000, 5_000)
"""Waits before a crashed lane is started again."""

UNWIND_MS_MAX: Final = 2_000
"""How long a crashed lane's cancelled turn may take to unwind before the lane starts again beside it."""

INTERRUPTIONS_MAX: Final = 3
"""Interruptions in a row after which a lane's turn is given up and its session suspended."""

UNREACHED_MAX: Final = 16
"""Replies given up that the next turn tells of; of older ones only the ledger knows."""

DRAFT_CHARS_MAX: Final = 4096
"""Characters of a reply in the making that are shown; its end shows the rest."""

BOTS_REST_MS: Final = 600_000
"""After so long without a word from a bot, its next one begins a new exchange."""

PRESSURE_MS: Final = 60_000
"""How often memory is looked at; a busy gateway may grow by gigabytes in the five minutes of the seed."""

PRESSURE_PASS_MS_MAX: Final = 30_000
"""How long a pass under memory pressure waits for those that it asked: as long as a turn waits for agents' hooks."""

COMMIT_RETRY_MS: Final = (50, 200, 1_000, 5_000)
"""Waits before a refused kept message is decided again, or an unknown commit is offered again."""

STORE_COMMIT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Encoded events of one commit; beyond it the store refuses (four of the largest replies)."""

STORE_GROUP_BYTES_MAX: Final = 64 * 1024 * 1024
"""Encoded events after which the store writes what it has of a group: bounds memory and the WAL."""

STORE_LOGS_CACHED_MAX: Final = 65_536
"""Logs whose head and binding the writer keeps in memory (about 300 bytes each); others are looked up."""

STORE_NAME_CHARS_MAX: Final = 16 * 1024
"""A log id, commit id or unique key; a lane's key holds several platform ids."""

BLOB_BYTES_MAX: Final = 64 * 1024 * 1024
"""One blob; held in memory whole while it is written or read (large platforms give bots at most 50 MB)."""

COMMIT_BLOBS_MAX: Final = 256
"""Blobs that one commit may refer to: as many as the messages that it may decide."""

KEYS_PRUNED_MAX: Final = 10_000
"""Unique keys that one call of a prune looks at: some 10 ms during which no commit is written."""

KEY_MARKS_MAX: Final = 32
"""Marks by which unique keys get their age: a key outlives its window by a 32nd of it at the most."""

BLOBS_SWEPT_MAX: Final = 1000
"""Blobs that one call of a sweep removes."""

WAL_CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
"""Size of SQLite's write-ahead log from which on it is checkpointed (SQLite's own default, 1000 pages)."""

WAL_CHECKPOINT_EVENTS: Final = 2000
"""Events after which a log that was taken over, but not cut, is worth a checkpoint again: about as many as fill it."""

WAL_CUT_BYTES: Final = 64 * 1024 * 1024
"""Size from which on it is cut as soon as no reader holds it; a reader of 10 s was seen to let it grow to 1.1 GiB."""

STORE_READ_MS_MAX: Final = 10_000
"""How long one read of the store may hold its snapshot; a longer one fails and says to read in pages."""

assert WAL_CHECKPOINT_BYTES < WAL_CUT_BYTES

JSONL_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""One batch of a JSONL log, compressed or not, as a reader takes it: a frame that claims more is a bomb, or strange."""

JSONL_LOGS_CACHED_MAX: Final = 4096
"""JSONL logs whose end the writer keeps in memory (about 400 bytes each); others are read through once more."""

PREPARED_MAX: Final = 5
"""Sessions read for viewing or resuming that are kept whole, in case the resume follows (event-log seed §13)."""

PREPARE_TRIES_MAX: Final = 8
"""Reads of a log that a stranger keeps changing, before the operation gives up (event-log seed §22: for ever)."""

LOG_WORKERS: Final = 4
"""Threads of the event-log service: sessions are read and synced side by side, each of them in order."""

TRANSFER_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Lines after which an export or import closes a batch: bounds its memory, and fits every backend's commit."""

WRITE_WINDOW_MS: Final = 200
"""How long a live session's event may wait for others to be stored with it (event-log seed §12)."""

WRITE_WINDOW_MS_MAX: Final = 2**31 - 1
"""The longest such wait that may be set: what timers of other runtimes take."""

WRITE_BATCH_EVENTS_MAX: Final = 4096
"""Events of one batch of a live session, so that a long outage isn't made good in one enormous write."""

LIST_PAGE: Final = 1000
"""Sessions that a listing asks of its backend at a time: bounds how long one call holds a thread."""

CHECKPOINT_EVENTS: Final = 256
"""Events of a log after which its next checkpoint is due: some fifty turns, folded in a few milliseconds."""

CHECKPOINT_REST_EVENTS: Final = 64
"""The same when the lane goes to rest, because its next message will fold them; fewer aren't worth a row."""

CHECKPOINTS_WAITING_MAX: Final = 1024
"""Checkpoints that wait for the writer to have time; beyond it the oldest are forgotten, which costs only time."""

CHECKPOINTS_STEP_MAX: Final = 64
"""Checkpoints of one step of the writer: bounds how long a commit waits for it."""

UPKEEP_GROUPS_MAX: Final = 64
"""Groups after which a writer that is never idle makes one step of upkeep all the same."""

SURFACE_TURNS_KEPT: Final = 200
"""Visible turns that a surface snapshot keeps for undoing; who goes back further folds the whole session."""

SURFACE_SKIP_EVENTS: Final = 256
"""Events between two shown messages that are worth skipping; shorter gaps are read through."""

COMPACT_EVENTS: Final = 20_000
"""Events of a lane log (about four thousand turns) below which compaction leaves it alone."""

COMPACT_READ_EVENTS: Final = 2048
"""Events that one piece of a compaction reads: bounds how long a lane that wants to be read waits for it."""

COMPACT_COMMITS_MAX: Final = 512
"""Commits that one step of the writer removes: bounds how long a group waits for it, and the WAL."""

COMPACT_LANES_MAX: Final = 1024
"""Lanes that may wait for their compaction; others ask again when they have grown on."""

assert CHECKPOINT_REST_EVENTS < CHECKPOINT_EVENTS < COMPACT_EVENTS
assert CHECKPOINTS_STEP_MAX <= CHECKPOINTS_WAITING_MAX

MIRROR_BYTES_MAX: Final = 512 * 1024 * 1024
"""A mirror (sessions.json) as it is read: some 500,000 entries. A larger file is none of ours."""

ENTRIES_CACHED_MAX: Final = 65_536
"""Entries kept for the next listing, each with the place up to which its lane was folded (about a KiB each)."""

SOLO_GATES_MAX: Final = 4096
"""Lanes that a store without a gateway keeps folded; others are read again."""

SPOOL_BYTES_MAX: Final = 64 * 1024 * 1024
"""The spool of a gateway whose store is away: some 100,000 messages, whose keys are held in memory meanwhile (about
200 bytes each). Beyond it messages are refused."""

SPOOL_GROUP_MAX: Final = 256
"""Messages that are spooled by one sync, or taken in side by side: bounds how long the first of them waits."""

SPOOL_WAITING_MAX: Final = 4096
"""Messages that may wait for the spool's next sync; beyond it they are refused."""

SPOOL_RETRY_MS: Final = (250, 1_000, 5_000, 15_000)
"""Waits before the store is tried again while messages are spooled."""

NOTICE_MS: Final = 600_000
"""How long a chat isn't told again that messages can't be taken or answered."""

NOTICES_MAX: Final = 4096
"""Chats remembered as told; beyond it the longest told may hear it again."""

IRC_LINE_BYTES_MAX: Final = 16 * 1024
"""One inbound line of IRC: 512, and 8191 of tags, with room to spare. A longer one is no IRC and is skipped."""

IRC_INBOUND_MAX: Final = 1024
"""IRC messages read and not yet accepted; when so many wait, the connection isn't read, and TCP holds the server."""

IRC_SENDS_MAX: Final = 1024
"""IRC messages waiting for their turn to be written; the runtime keeps the rest in its ledger."""

STREAM_LINE_BYTES_MAX: Final = 1024 * 1024
"""One line of a model's stream; a server that sends longer ones is not speaking this protocol."""

CONFIG_FILE_BYTES_MAX: Final = 1 << 20
"""A configuration larger than 1 MiB is some other file, given by mistake."""

EXTRA_WORKERS_MAX: Final = 256
"""Workers that a pool adds while others block: a chain this long is a loop of asks, not a program."""

assert PRESSURE_PASS_MS_MAX < PRESSURE_MS
assert STORE_COMMIT_BYTES_MAX < JSONL_FRAME_BYTES_MAX
assert STORE_COMMIT_BYTES_MAX <= STORE_GROUP_BYTES_MAX
assert COMMIT_BYTES_MAX // MEDIA_WEIGHT + MEDIA_MAX <= COMMIT_BLOBS_MAX
assert REPLY_BYTES_MAX < STORE_COMMIT_BYTES_MAX
assert STORE_NAME_CHARS_MAX >= 3 * ID_CHARS_MAX
assert TEXT_BYTES_MAX < COMMIT_BYTES_MAX < STASH_BYTES_MAX
assert COMMIT_MESSAGES_MAX <= STASH_MESSAGES_MAX <= WAITING_MAX
assert TOOL_RESULT_BYTES_MAX < COMMIT_BYTES_MAX
