"""Groups by transcripts: see tests/support/group_transcripts.py for how to read one, and
`pytest --rewrite-transcripts tests/broker_lite/machines` to write what comes out now."""

from pathlib import Path

import pytest

from tests.support.group_machine import MachineSide
from tests.support.group_transcripts import Step, Transcript, read_steps, write_steps

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    transcript = Transcript(MachineSide())
    steps = read_steps(path.read_text())
    happened = [Step(step.commands, transcript.run(step)) for step in steps]
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(write_steps(happened))
    for step, wanted in zip(happened, steps, strict=True):
        assert step == wanted, path.name
