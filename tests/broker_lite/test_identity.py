"""meta.properties: all directories of a broker belong together."""

from pathlib import Path

import pytest

from pylog.broker_lite.config import ConfigError
from pylog.broker_lite.identity import agree
from tests.support.simulated_files import SimulatedFiles


@pytest.fixture
def files():
    files = SimulatedFiles()
    for name in "abc":
        files.create_directory(files.root / name)
    return files


def properties(files, name):
    text = files.read(files.root / name / "meta.properties").decode()
    return dict(line.split("=", 1) for line in text.splitlines())


def write(files, name, text):
    files.replace(files.root / name / "meta.properties", text.encode(), durable=True)


def test_new_directories_get_one_cluster_and_an_id_each(files):
    directories = [files.root / "a", files.root / "b"]
    cluster_id = agree(directories, 3, files)
    found = [properties(files, name) for name in "ab"]
    assert [(one["version"], one["cluster.id"], one["node.id"]) for one in found] == [("1", cluster_id, "3")] * 2
    assert len({one["directory.id"] for one in found}) == 2
    assert all(len(one["directory.id"]) == 22 for one in found)
    assert agree(directories, 3, files) == cluster_id
    assert [properties(files, name) for name in "ab"] == found


def test_a_directory_that_joins_takes_over_the_cluster(files):
    cluster_id = agree([files.root / "a"], 1, files)
    assert agree([files.root / "b", files.root / "a"], 1, files) == cluster_id
    assert properties(files, "b")["cluster.id"] == cluster_id


def test_it_is_durable(files):
    cluster_id = agree([files.root / "a"], 1, files)
    files.sync_all()
    assert agree([files.root / "b", files.root / "a"], 1, files) == cluster_id
    assert properties(files.after_machine_crash(None), "b")["cluster.id"] == cluster_id


KAFKAS = "#\n#Tue Nov 03 10:00:00 UTC 2026\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n"


def test_what_kafka_wrote_is_understood(files):
    write(files, "a", KAFKAS + "directory.id=Kc0rpaIQQUeLAIFTsYU2lg\n")
    assert agree([files.root / "a"], 1, files) == "4L6g3nShT-eMCtK--X86sw"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        pytest.param({"a": KAFKAS.replace("id=1", "id=2")}, "belongs to node 2; set node.id=2", id="another node"),
        pytest.param(
            {"a": KAFKAS, "b": KAFKAS.replace("4L6g", "XXXX")},
            "b is of the cluster XXXX.*, and .*a of 4L6g",
            id="two clusters",
        ),
        pytest.param(
            {"a": KAFKAS + "directory.id=x\n", "b": KAFKAS + "directory.id=x\n"}, "one of them is a copy", id="a copy"
        ),
        pytest.param({"a": KAFKAS.replace("version=1", "version=0")}, "version 0; only 1", id="an old version"),
        pytest.param({"a": ""}, "version None", id="an empty file"),
        pytest.param({"a": "version=1\nnode.id=1\n"}, "cluster.id is missing", id="no cluster"),
    ],
)
def test_what_does_not_fit_is_refused_with_words_and_nothing_is_written(files, texts, words):
    for name, text in texts.items():
        write(files, name, text)
    before = files.tree()
    with pytest.raises(ConfigError, match=words):
        agree([files.root / name for name in "cab"], 1, files)
    assert files.tree() == before


def test_a_new_cluster_is_not_begun_while_a_directory_cannot_be_read(files):
    with pytest.raises(ConfigError, match="/lost cannot be read"):
        agree([files.root / "a"], 1, files, unreadable=[Path("/lost")])
    cluster_id = agree([files.root / "a"], 1, files)
    assert agree([files.root / "a"], 1, files, unreadable=[Path("/lost")]) == cluster_id
