"""What a checkpoint keeps of a stream: `{"topic": {"0": 123}}`, as with Spark's Kafka connector, and a note beside it.

The note stands under a name that no topic can have, and tells what no offset does: which topics of these names were
read (their ids), by which query (its group is named so), and, at the end of a query's first batch only, where that
began: the answer to `startingOffsets` may be another one when the batch is replayed. An offset without a note, from an
older version or from Spark's connector, is read all the same, and gets one with the next batch.

Spark compares offsets as text: what is written is sorted, and where nothing changed the text that came goes back.
"""

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from pylog.connector.spark.offsets import NOTE, Offsets, from_json, to_json


class Mark(NamedTuple):
    """How far a query has got."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = {}  # those that are known
    query: str | None = None  # its name for itself, made up once
    first: Offsets | None = None  # where the first batch began; in its end only

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Mark":
        note = found.get(NOTE, {})
        first = note.get("first")
        return Mark(
            offsets=from_json({topic: ids for topic, ids in found.items() if topic != NOTE}),
            topic_ids=note.get("topicIds", {}),
            query=note.get("query"),
            first=None if first is None else from_json(first),
        )

    def to_json(self) -> dict[str, Any]:
        note: dict[str, Any] = {}
        if self.first is not None:
            note["first"] = to_json(self.first)
        if self.query is not None:
            note["query"] = self.query
        if self.topic_ids:
            note["topicIds"] = dict(sorted(self.topic_ids.items()))
        return {**({NOTE: note} if note else {}), **to_json(self.offsets)}

    def remade(self, topic_ids: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """The topics whose id is another one now: (as it was, as it is)."""
        return {
            topic: (known, topic_ids[topic])
            for topic, known in self.topic_ids.items()
            if topic_ids.get(topic, known) != known
        }

    def topic_id(self, topic: str) -> UUID | None:
        """None if it is not known."""
        text = self.topic_ids.get(topic)
        return UUID(bytes=base64.urlsafe_b64decode(f"{text}==")) if text else None


def id_text(topic_id: UUID) -> str:
    """As Kafka's tools show it; empty for a broker that has no ids (Kafka before 2.8)."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if topic_id.int else ""
