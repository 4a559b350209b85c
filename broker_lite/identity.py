"""Who the data belongs to: `meta.properties` in each data directory, in Kafka's form.

All directories of a broker name the same cluster and the same node; each has an id of its own. A directory without
the file is a new one and gets it.
"""

import base64
from collections.abc import Collection, Sequence
from pathlib import Path
from uuid import uuid4

from pylog.broker_lite.config import ConfigError
from pylog.storage.ports import FileSystem

FILE_NAME = "meta.properties"
_VERSION = "1"


def agree(directories: Sequence[Path], node_id: int, files: FileSystem, unreadable: Collection[Path] = ()) -> str:
    """The cluster's id, new if no directory has one. ConfigError says what does not fit together."""
    found = {directory: _read(directory, files) for directory in directories}
    known = {directory: properties for directory, properties in found.items() if properties is not None}
    cluster_id, first = "", Path()
    directory_ids: dict[str, Path] = {}
    for directory, properties in known.items():
        if properties["node.id"] != str(node_id):
            raise ConfigError(
                f"node.id={node_id}: {directory} belongs to node {properties['node.id']}; "
                f"set node.id={properties['node.id']} or use another directory"
            )
        if cluster_id and properties["cluster.id"] != cluster_id:
            raise ConfigError(
                f"log.dirs: {directory} is of the cluster {properties['cluster.id']}, and {first} of {cluster_id}; "
                "a broker's directories are all of one cluster"
            )
        cluster_id, first = properties["cluster.id"], directory
        directory_id = properties.get("directory.id")
        if directory_id is not None:
            if directory_id in directory_ids:
                raise ConfigError(
                    f"log.dirs: {directory} and {directory_ids[directory_id]} have the same directory.id, "
                    f"{directory_id}; one of them is a copy"
                )
            directory_ids[directory_id] = directory
    if not cluster_id:
        if unreadable:  # one of them may have an id, which a new one would contradict for ever
            raise ConfigError(
                f"log.dirs: {', '.join(map(str, unreadable))} cannot be read, and no other directory is in use yet"
            )
        cluster_id = _new_id()
    for directory, its_properties in found.items():
        if its_properties is None:
            text = f"version={_VERSION}\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={_new_id()}\n"
            files.replace(directory / FILE_NAME, text.encode(), durable=True)
    return cluster_id


def _read(directory: Path, files: FileSystem) -> dict[str, str] | None:
    path = directory / FILE_NAME
    data = files.read(path)
    if data is None:
        return None
    lines = data.decode("utf-8", "replace").splitlines()
    properties = {
        name.strip(): value.strip()
        for name, equals, value in (line.partition("=") for line in lines)
        if equals and not name.startswith("#")
    }
    if properties.get("version") != _VERSION:
        raise ConfigError(f"{path}: version {properties.get('version')}; only {_VERSION} is known")
    for name in ("cluster.id", "node.id"):
        if not properties.get(name):
            raise ConfigError(f"{path}: {name} is missing")
    return properties


def _new_id() -> str:
    """22 characters, the first no dash: it would look like an option on a command line."""
    while (text := base64.urlsafe_b64encode(uuid4().bytes)[:22].decode()).startswith("-"):
        pass
    return text
