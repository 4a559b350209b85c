"""All that the broker can do, by API key. ApiVersions answers from this table."""

from pylog.broker_lite.api import Api
from pylog.broker_lite.apis import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)


def _table(*apis: Api) -> dict[int, Api]:
    table: dict[int, Api] = {}
    for api in apis:
        if api.spec.key in table:
            raise ValueError(f"API {api.spec.key} is there twice")
        table[api.spec.key] = api
    return table


API_BY_KEY = _table(
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    init_producer_id.API,
    describe_configs.API,
    alter_configs.API,
    create_partitions.API,
    delete_groups.API,
    incremental_alter_configs.API,
    offset_delete.API,
    list_config_resources.API,
    delete_records.API,
    describe_cluster.API,
    describe_log_dirs.API,
    describe_producers.API,
    describe_topic_partitions.API,
    offset_for_leader_epoch.API,
    elect_leaders.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
)
