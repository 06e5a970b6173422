"""The read-only views ``sessions`` and ``messages``: the gateway seed's tables, for people and tools.

They hold nothing: each row is worked out from the logs when it is asked for, so they can't disagree with them, and a
file that has lost them gets them again when it is next opened for writing.

What a message's ``active`` and ``compacted`` say is what ``seriatim.surface.visibility`` says (a test holds them
together): current 1/0, shadowed by a summary 0/1, undone 0/0. A ``surface/reset`` undoes the events from its ``asOf``
up to itself; the resets that count are the last one, then the last before that one's ``asOf``, and so on. Among what
was not undone, a message is shadowed if another one cites it as what it replaces.

Times are epoch seconds, as in the seed's tables.
"""

from __future__ import annotations

import sqlite3
from typing import Final

_RESETS: Final = """
  resets(log, seq, as_of) AS (
    SELECT log, seq, json_extract(data, '$.asOf') FROM events WHERE type = 'surface/reset'),
  undone(log, first, last) AS (
    SELECT log, as_of, max(seq) FROM resets GROUP BY log
    UNION ALL
    SELECT r.log, r.as_of, r.seq FROM undone u JOIN resets r ON r.log = u.log AND r.seq = (
      SELECT max(seq) FROM resets WHERE log = u.log AND seq < u.first)),
  replaced(log, seq) AS (
    SELECT e.log, s.value FROM events e, json_each(e.source_event_seqs) s
    WHERE e.source_event_seqs IS NOT NULL AND json_extract(e.surface_op, '$.op') = 'replace'
      AND NOT EXISTS (SELECT 1 FROM undone u WHERE u.log = e.log AND e.seq BETWEEN u.first AND u.last)),
  hidden(log, seq) AS (SELECT DISTINCT log, seq FROM replaced)"""

MESSAGES: Final = f"""CREATE VIEW messages AS
WITH RECURSIVE {_RESETS}
SELECT e.at AS id, substr(l.id, 9) AS session_id, e.seq AS seq, json_extract(e.data, '$.turn') AS turn,
  CASE e.type WHEN 'user/message' THEN 'user' WHEN 'assistant/message' THEN 'assistant' ELSE 'tool' END AS role,
  coalesce(json_extract(e.data, '$.text'), json_extract(e.data, '$.content'), json_extract(e.data, '$.outcome'))
    AS content,
  json_extract(e.data, '$.author') AS author,
  CASE e.type WHEN 'tool/result' THEN json_extract(e.data, '$.id') END AS tool_call_id,
  json_extract(e.data, '$.calls') AS tool_calls,
  json_extract(e.data, '$.finish') AS finish_reason,
  e.time / 1000.0 AS timestamp,
  u.log IS NULL AND h.log IS NULL AS active,
  u.log IS NULL AND h.log IS NOT NULL AS compacted
FROM logs l JOIN commits c ON c.log = l.n JOIN events e ON e.at BETWEEN c.at AND c.at + c.count - 1
  LEFT JOIN undone u ON u.log = e.log AND e.seq BETWEEN u.first AND u.last
  LEFT JOIN hidden h ON h.log = e.log AND h.seq = e.seq
WHERE l.id GLOB 'session:*' AND e.type IN ('user/message', 'assistant/message', 'tool/result')"""  # noqa: S608 - own text

SESSIONS: Final = """CREATE VIEW sessions AS
WITH told AS MATERIALIZED (
  SELECT l.n AS n, count(*) FILTER (WHERE e.type IN ('user/message', 'assistant/message', 'tool/result')) AS messages,
    count(*) FILTER (WHERE e.type = 'tool/call') AS calls, max(e.time) AS last,
    sum(json_extract(e.data, '$.usage.input')) AS input, sum(json_extract(e.data, '$.usage.output')) AS output,
    sum(json_extract(e.data, '$.usage.cacheRead')) AS cache_read,
    sum(json_extract(e.data, '$.usage.cacheWrite')) AS cache_write,
    sum(json_extract(e.data, '$.usage.total')) AS total
  FROM logs l JOIN commits c ON c.log = l.n JOIN events e ON e.at BETWEEN c.at AND c.at + c.count - 1
  WHERE l.id GLOB 'session:*' GROUP BY l.n)
SELECT substr(l.id, 9) AS id, substr(l.lane, 6) AS session_key,
  json_extract(l.header, '$.createdAt') / 1000.0 AS started_at,
  coalesce(t.last, json_extract(l.header, '$.createdAt')) / 1000.0 AS updated_at,
  coalesce(t.messages, 0) AS message_count, coalesce(t.calls, 0) AS tool_call_count,
  coalesce(t.input, 0) AS input_tokens, coalesce(t.output, 0) AS output_tokens,
  coalesce(t.cache_read, 0) AS cache_read_tokens, coalesce(t.cache_write, 0) AS cache_write_tokens,
  coalesce(t.total, 0) AS total_tokens
FROM logs l LEFT JOIN told t ON t.n = l.n WHERE l.id GLOB 'session:*'"""

INDEXES: Final = (
    # The views ask for these few events; nothing else in ``events`` is indexed.
    "CREATE INDEX surface_resets ON events(log, seq) WHERE type = 'surface/reset'",
    "CREATE INDEX surface_sources ON events(log, seq) WHERE source_event_seqs IS NOT NULL",
    "CREATE INDEX session_ids ON logs(substr(id, 9)) WHERE id GLOB 'session:*'",
)
VIEWS: Final = {"messages": MESSAGES, "sessions": SESSIONS}


def restore_views(connection: sqlite3.Connection) -> None:
    """Make the views what they should be, inside the caller's transaction. Raises sqlite3.Error."""
    present = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'").fetchall())
    for name, text in VIEWS.items():
        if present.get(name) != text:
            connection.execute(f"DROP VIEW IF EXISTS {name}")
            connection.execute(text)
