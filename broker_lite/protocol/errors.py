"""Kafka's error codes, one table: code, whether trying again may help, and what it means."""

from enum import IntEnum

RETRIABLE = True
FINAL = False


class ErrorCode(IntEnum):
    """An int on the wire; `retriable` as Kafka's clients see it; `message` is empty where the name says it all."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = FINAL, message: str = "") -> "ErrorCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, FINAL, "the broker failed in a way it did not foresee; its log says more"
    NONE = 0, FINAL
    OFFSET_OUT_OF_RANGE = 1, FINAL, "the log does not hold this offset"
    CORRUPT_MESSAGE = 2, RETRIABLE, "a record batch is damaged: its CRC or its length is wrong"
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRIABLE, "this broker does not host this topic or partition"
    INVALID_FETCH_SIZE = 4, FINAL, "the fetch size cannot be"
    LEADER_NOT_AVAILABLE = 5, RETRIABLE, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, RETRIABLE, "this broker does not lead this partition"
    REQUEST_TIMED_OUT = 7, RETRIABLE, "the request took longer than it allows"
    BROKER_NOT_AVAILABLE = 8, FINAL
    REPLICA_NOT_AVAILABLE = 9, RETRIABLE
    MESSAGE_TOO_LARGE = 10, FINAL, "a record batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, FINAL
    OFFSET_METADATA_TOO_LARGE = 12, FINAL, "the metadata of a committed offset is longer than the broker allows"
    NETWORK_EXCEPTION = 13, RETRIABLE, "the connection broke before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRIABLE, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, RETRIABLE, "the coordinator is not there"
    NOT_COORDINATOR = 16, RETRIABLE, "another broker coordinates this group or transaction"
    INVALID_TOPIC_EXCEPTION = 17, FINAL, "the topic's name is not allowed, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, FINAL, "the record batches are larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, RETRIABLE, "fewer replicas are in sync than the topic asks for"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        RETRIABLE,
        "written, but to fewer replicas than the topic asks for",
    )
    INVALID_REQUIRED_ACKS = 21, FINAL, "acks must be 0, 1 or -1 (all)"
    ILLEGAL_GENERATION = 22, FINAL, "the generation is not the group's present one"
    INCONSISTENT_GROUP_PROTOCOL = 23, FINAL, "the member's protocols do not fit those of the group"
    INVALID_GROUP_ID = 24, FINAL, "the group id is not allowed"
    UNKNOWN_MEMBER_ID = 25, FINAL, "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, FINAL, "the session timeout is out of the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, FINAL, "the group is rebalancing; join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, FINAL, "the commit is larger than the broker allows"
    TOPIC_AUTHORIZATION_FAILED = 29, FINAL, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, FINAL, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, FINAL, "not allowed on this cluster"
    INVALID_TIMESTAMP = 32, FINAL, "the timestamp of a record is out of range"
    UNSUPPORTED_SASL_MECHANISM = 33, FINAL, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, FINAL, "the request does not belong to this state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, FINAL, "the broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, FINAL, "a topic of this name exists"
    INVALID_PARTITIONS = 37, FINAL, "the number of partitions must be at least 1"
    INVALID_REPLICATION_FACTOR = (
        38,
        FINAL,
        "the replication factor must be between 1 and the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, FINAL, "the replica assignment cannot be"
    INVALID_CONFIG = 40, FINAL, "a configuration is unknown or its value is not allowed"
    NOT_CONTROLLER = 41, RETRIABLE, "this broker is not the controller"
    INVALID_REQUEST = 42, FINAL, "the request contradicts itself or its version"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FINAL, "the log's message format does not support this request"
    POLICY_VIOLATION = 44, FINAL, "the request is against the broker's policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FINAL, "a producer's sequence numbers have a gap"
    DUPLICATE_SEQUENCE_NUMBER = 46, FINAL, "these records were written already"
    INVALID_PRODUCER_EPOCH = 47, FINAL, "an older instance of this producer"
    INVALID_TXN_STATE = 48, FINAL, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, FINAL, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, FINAL, "the transaction timeout is larger than the broker allows"
    CONCURRENT_TRANSACTIONS = 51, RETRIABLE, "another operation on this transaction is under way"
    TRANSACTION_COORDINATOR_FENCED = 52, FINAL
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FINAL, "not allowed on this transactional id"
    SECURITY_DISABLED = 54, FINAL
    OPERATION_NOT_ATTEMPTED = 55, FINAL
    KAFKA_STORAGE_ERROR = 56, RETRIABLE, "the disk failed under the log"
    LOG_DIR_NOT_FOUND = 57, FINAL
    SASL_AUTHENTICATION_FAILED = 58, FINAL, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, FINAL, "the broker has no state of this producer"
    REASSIGNMENT_IN_PROGRESS = 60, FINAL
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FINAL
    DELEGATION_TOKEN_NOT_FOUND = 62, FINAL
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FINAL
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, FINAL
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FINAL
    DELEGATION_TOKEN_EXPIRED = 66, FINAL
    INVALID_PRINCIPAL_TYPE = 67, FINAL
    NON_EMPTY_GROUP = 68, FINAL, "the group has members"
    GROUP_ID_NOT_FOUND = 69, FINAL, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRIABLE, "the broker does not know this fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, RETRIABLE, "the epoch of the fetch session is not the next one"
    LISTENER_NOT_FOUND = 72, RETRIABLE
    TOPIC_DELETION_DISABLED = 73, FINAL, "topics may not be deleted here"
    FENCED_LEADER_EPOCH = 74, RETRIABLE, "the leader epoch of the request is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, RETRIABLE, "the leader epoch of the request is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        FINAL,
        "the broker or this version does not know the compression",
    )
    STALE_BROKER_EPOCH = 77, FINAL
    OFFSET_NOT_AVAILABLE = 78, RETRIABLE, "the new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, FINAL, "join again with the member id of this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, FINAL, "the group is full"
    FENCED_INSTANCE_ID = 82, FINAL, "a newer member took over this instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRIABLE
    ELECTION_NOT_NEEDED = 84, RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, FINAL
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FINAL
    INVALID_RECORD = 87, FINAL, "a record is not valid"
    UNSTABLE_OFFSET_COMMIT = 88, RETRIABLE, "a transaction may still change these offsets"
    THROTTLING_QUOTA_EXCEEDED = 89, RETRIABLE, "the quota is used up for now"
    PRODUCER_FENCED = 90, FINAL, "a newer producer took over this transactional id"
    RESOURCE_NOT_FOUND = 91, FINAL, "no such resource"
    DUPLICATE_RESOURCE = 92, FINAL, "this resource exists"
    UNACCEPTABLE_CREDENTIAL = 93, FINAL
    INCONSISTENT_VOTER_SET = 94, FINAL
    INVALID_UPDATE_VERSION = 95, FINAL
    FEATURE_UPDATE_FAILED = 96, FINAL
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FINAL
    SNAPSHOT_NOT_FOUND = 98, FINAL
    POSITION_OUT_OF_RANGE = 99, FINAL
    UNKNOWN_TOPIC_ID = 100, RETRIABLE, "no topic has this id"
    DUPLICATE_BROKER_REGISTRATION = 101, FINAL
    BROKER_ID_NOT_REGISTERED = 102, FINAL
    INCONSISTENT_TOPIC_ID = 103, RETRIABLE, "the topic id does not belong to this topic"
    INCONSISTENT_CLUSTER_ID = 104, FINAL
    TRANSACTIONAL_ID_NOT_FOUND = 105, FINAL
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRIABLE
    INELIGIBLE_REPLICA = 107, FINAL
    NEW_LEADER_ELECTED = 108, FINAL
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FINAL
    FENCED_MEMBER_EPOCH = 110, FINAL, "the member's epoch is older than the group's"
    UNRELEASED_INSTANCE_ID = 111, FINAL
    UNSUPPORTED_ASSIGNOR = 112, FINAL
    STALE_MEMBER_EPOCH = 113, FINAL, "the member's epoch is not the newest one"
    MISMATCHED_ENDPOINT_TYPE = 114, FINAL
    UNSUPPORTED_ENDPOINT_TYPE = 115, FINAL
    UNKNOWN_CONTROLLER_ID = 116, FINAL
    UNKNOWN_SUBSCRIPTION_ID = 117, FINAL
    TELEMETRY_TOO_LARGE = 118, FINAL
    INVALID_REGISTRATION = 119, FINAL
    TRANSACTION_ABORTABLE = 120, FINAL, "the transaction failed; abort it and go on"
    INVALID_RECORD_STATE = 121, FINAL
    SHARE_SESSION_NOT_FOUND = 122, RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, RETRIABLE
    FENCED_STATE_EPOCH = 124, FINAL
    INVALID_VOTER_KEY = 125, FINAL
    DUPLICATE_VOTER = 126, FINAL
    VOTER_NOT_FOUND = 127, FINAL
    INVALID_REGULAR_EXPRESSION = 128, FINAL
    REBOOTSTRAP_REQUIRED = 129, FINAL, "the client's metadata is stale; start again from the bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, FINAL
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FINAL
    STREAMS_TOPOLOGY_FENCED = 132, FINAL
    SHARE_SESSION_LIMIT_REACHED = 133, RETRIABLE


def name_of(code: int) -> str:
    """The name of a code, also of one that a newer broker made up."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_ERROR_{code}"


def is_retriable(code: int) -> bool:
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
