import pytest

from pylog.broker_lite.config_changes import Operation, changed, replaced
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from pylog.broker_lite.topic_rows import TOPIC_ROW

POLICY = "cleanup.policy"


@pytest.mark.parametrize(
    ("operation", "present", "changes"),
    [
        pytest.param(Operation("flush.ms", SET, "5"), {}, {"flush.ms": "5"}, id="set"),
        pytest.param(Operation("flush.ms", SET, "5"), {"flush.ms": "4"}, {"flush.ms": "5"}, id="set again"),
        pytest.param(Operation("flush.ms", DELETE, "5"), {"flush.ms": "4"}, {"flush.ms": None}, id="back"),
        pytest.param(Operation(POLICY, APPEND, "compact"), {}, {POLICY: "delete,compact"}, id="more than the default"),
        pytest.param(Operation(POLICY, APPEND, "delete"), {POLICY: "compact"}, {POLICY: "compact,delete"}, id="more"),
        pytest.param(Operation(POLICY, APPEND, "compact"), {POLICY: "compact"}, {}, id="no more"),
        pytest.param(Operation(POLICY, APPEND, "delete, compact"), {POLICY: ""}, {POLICY: "delete,compact"}, id="two"),
        pytest.param(Operation(POLICY, SUBTRACT, "compact"), {POLICY: "compact,delete"}, {POLICY: "delete"}, id="less"),
        pytest.param(Operation(POLICY, SUBTRACT, "delete"), {}, {POLICY: ""}, id="less than the default"),
        pytest.param(Operation(POLICY, SUBTRACT, "compact"), {}, {}, id="no less"),
    ],
)
def test_an_operation_changes_its_option(operation, present, changes):
    assert changed([operation], present, TOPIC_ROW) == changes


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        pytest.param([Operation("flush.ms", SET, None)], ErrorCode.INVALID_REQUEST, id="no value"),
        pytest.param([Operation(POLICY, APPEND, None)], ErrorCode.INVALID_REQUEST, id="nothing to add"),
        pytest.param([Operation("flush.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, id="not a list"),
        pytest.param([Operation("nosuch", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, id="unknown"),
        pytest.param([Operation("flush.ms", 4, "1")], ErrorCode.INVALID_REQUEST, id="no operation"),
        pytest.param([Operation("flush.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST, id="twice"),
    ],
)
def test_an_operation_that_cannot_be_is_refused(operations, code):
    with pytest.raises(RequestError) as refused:
        changed(operations, {}, TOPIC_ROW)
    assert refused.value.code == code


def test_who_replaces_all_gives_back_what_is_not_named():
    present = {"flush.ms": "1", "retention.ms": "2"}
    assert replaced([("flush.ms", "9"), (POLICY, "compact")], present) == {
        "flush.ms": "9",
        "retention.ms": None,
        POLICY: "compact",
    }
    assert replaced([], present) == {"flush.ms": None, "retention.ms": None}
