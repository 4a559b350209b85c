from kio.schema.errors import ErrorCode as Theirs

from pylog.broker_lite.protocol.errors import ErrorCode, is_retriable, name_of


def test_codes_names_and_what_may_be_retried_are_kafkas() -> None:
    ours = {(int(code), code.name, code.retriable) for code in ErrorCode}
    assert ours == {(int(code), code.name.upper(), code.retriable) for code in Theirs}


def test_a_code_is_an_int_on_the_wire() -> None:
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == 3
    assert isinstance(ErrorCode.NONE, int)


def test_a_code_of_a_newer_broker_has_a_name_and_is_final() -> None:
    assert name_of(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert name_of(9999) == "UNKNOWN_ERROR_9999"
    assert is_retriable(6)
    assert not is_retriable(9999)
