"""What a machine answers when it is asked to decide."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Event = TypeVar("Event")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Event, Reply]):
    """The caller, in this order: appends `events` to the machine's log, replays them, awaits that
    they are committed, sends `reply`. Deciding has changed nothing yet."""

    events: list[Event]
    reply: Reply
