"""A crash of the simulated machine loses what it may lose, all of it and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated_examples import (
    ROOT,
    SEEDS,
    A,
    B,
    C,
    D,
    Tree,
    contents_of_a,
    outcomes,
    with_synced,
    workload,
)
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_nodes import BLOCK_BYTES

# -- bytes


def test_what_was_synced_is_there_for_every_seed() -> None:
    files = SimulatedFiles()
    files.make_directory(D)
    files.write_at(D / "a", 0, b"0123")
    files.open_appender(D / "a").sync()
    files.sync(D)
    assert outcomes(files) == [{"d": None, "d/a": b"0123"}]


def test_an_unsynced_append_is_lost_torn_or_zeros_at_its_new_length() -> None:
    files = with_synced(a=b"01")
    files.open_appender(A).append(b"23", 2)
    assert contents_of_a(files) == {b"01", b"012", b"0123", b"01\0\0", b"012\0"}


def test_unsynced_appends_survive_in_order_or_as_zeros() -> None:
    files = with_synced(a=b"0")
    appender = files.open_appender(A)
    appender.append(b"1", 1)
    appender.append(b"2", 2)
    assert contents_of_a(files) == {b"0", b"01", b"012", b"0\0", b"0\0\0", b"01\0"}


def test_an_unsynced_overwrite_leaves_old_bytes_and_new_ones() -> None:
    files = with_synced(a=b"0123")
    files.write_at(A, 1, b"xy")
    assert contents_of_a(files) == {b"0123", b"0x23", b"0xy3"}


def test_bytes_behind_a_truncation_do_not_come_back_in_a_longer_file() -> None:
    files = with_synced(a=b"0123")
    files.truncate(A, 1)
    files.write_at(A, 1, b"xy")
    assert contents_of_a(files) == {b"0123", b"0", b"0x", b"0xy", b"0\0\0", b"0x\0"}


def test_blocks_survive_in_any_subset_and_none_is_torn_within() -> None:
    files = with_synced(a=b"")
    files.write_at(A, 0, b"1" * BLOCK_BYTES + b"2" * BLOCK_BYTES + b"3" * BLOCK_BYTES)
    seen = contents_of_a(files)
    for first in (b"\0", b"1"):
        for second in (b"\0", b"2"):
            for third in (b"\0", b"3"):
                assert first * BLOCK_BYTES + second * BLOCK_BYTES + third * BLOCK_BYTES in seen


def test_a_block_that_has_a_later_write_has_the_earlier_ones_too() -> None:
    files = with_synced(a=b"...")
    files.write_at(A, 0, b"1")
    files.write_at(A, 2, b"2")
    assert contents_of_a(files) == {b"...", b"1..", b"1.2"}


def test_each_block_is_as_old_as_it_likes() -> None:
    files = with_synced(a=b"0" * 2 * BLOCK_BYTES)
    files.write_at(A, 0, b"1" * 2 * BLOCK_BYTES)
    files.write_at(A, 0, b"2" * 2 * BLOCK_BYTES)
    seen = contents_of_a(files)
    for first in (b"0", b"1", b"2"):
        for second in (b"0", b"1", b"2"):
            assert first * BLOCK_BYTES + second * BLOCK_BYTES in seen


def test_without_a_seed_nothing_unsynced_survives() -> None:
    files = with_synced(a=b"0123")
    files.truncate(A, 2)
    files.rename(A, B)
    files.write_at(C, 0, b"c")
    assert files.after_machine_crash(None).tree() == {"a": b"0123"}


def test_what_survived_is_on_the_disk() -> None:
    files = SimulatedFiles()
    workload(files)
    for seed in SEEDS:
        survived = files.after_machine_crash(seed)
        assert survived.after_machine_crash(seed + 1).tree() == survived.tree()


# -- names


def test_a_synced_file_without_a_durable_name_is_gone_unless_chance_has_it() -> None:
    files = SimulatedFiles()
    files.write_at(A, 0, b"0123")
    files.sync(A)
    assert len(outcomes(files)) == 2
    assert {"a": b"0123"} in outcomes(files)
    assert {} in outcomes(files)


def test_a_durable_name_does_not_keep_the_bytes() -> None:
    files = SimulatedFiles()
    files.write_at(A, 0, b"01")
    files.sync(ROOT)
    assert contents_of_a(files) == {b"", b"0", b"01", b"\0\0", b"0\0"}


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    files = with_synced(a=b"old")
    files.replace(A, b"new", durable=False)
    files.sync(ROOT / "a")
    both = [{"a": b"old"}, {"a": b"new"}, {"a": b"old", "a.tmp": b"new"}]
    found = outcomes(files)
    assert len(found) == 3
    assert all(tree in found for tree in both)
    files.sync(ROOT)
    assert outcomes(files) == [{"a": b"new"}]


def test_a_removed_file_comes_back_until_its_directory_is_synced() -> None:
    files = with_synced(a=b"0123")
    files.remove(A)
    found = outcomes(files)
    assert len(found) == 2
    assert {} in found
    assert {"a": b"0123"} in found
    files.sync(ROOT)
    assert outcomes(files) == [{}]


def test_names_survive_independently_of_each_other() -> None:
    files = with_synced(a=b"a")
    files.create_empty(B)
    files.remove(A)
    found = outcomes(files)
    expected: list[Tree] = [{"a": b"a"}, {"a": b"a", "b": b""}, {"b": b""}, {}]
    assert len(found) == 4
    assert all(tree in found for tree in expected)


def test_a_file_that_lost_its_new_name_has_its_old_one() -> None:
    files = with_synced(a=b"a", b=b"b")
    files.rename(A, C)
    files.rename(B, A)  # may not survive alone: `a` would be lost
    found = outcomes(files)
    expected: list[Tree] = [{"a": b"a", "b": b"b"}, {"b": b"b", "c": b"a"}, {"a": b"b", "c": b"a"}]
    assert len(found) == 3
    assert all(tree in found for tree in expected)


def test_a_directory_is_durable_with_its_parent() -> None:
    files = SimulatedFiles()
    files.create_directory(D)
    files.write_at(D / "a", 0, b"x")
    files.sync(D / "a")
    files.sync(D)
    found = outcomes(files)
    assert len(found) == 2
    assert {} in found
    assert {"d": None, "d/a": b"x"} in found
    files.sync(ROOT)
    assert outcomes(files) == [{"d": None, "d/a": b"x"}]
    files.rename(D, ROOT / "e")
    found = outcomes(files)
    assert len(found) == 2
    assert {"e": None, "e/a": b"x"} in found


def test_a_removed_tree_may_come_back_in_part() -> None:
    files = SimulatedFiles()
    files.create_directory(D)
    files.write_at(D / "a", 0, b"a")
    files.write_at(D / "b", 0, b"b")
    files.sync_all()
    files.remove_tree(D)
    found = outcomes(files)
    expected: list[Tree] = [{}, {"d": None}, {"d": None, "d/a": b"a"}, {"d": None, "d/b": b"b"}]
    assert len(found) == 5
    assert all(tree in found for tree in [*expected, {"d": None, "d/a": b"a", "d/b": b"b"}])


# -- any sequence


names = st.sampled_from([A, B, C])
steps = st.one_of(
    st.tuples(st.sampled_from(["create_empty", "remove", "sync", "sync_root", "fork"]), names),
    st.tuples(st.just("write_at"), names, st.integers(0, 1100), st.binary(min_size=1, max_size=600)),
    st.tuples(st.just("truncate"), names, st.integers(0, 1100)),
    st.tuples(st.just("rename"), names, names),
)


def carry_out(files: SimulatedFiles, step: tuple[object, ...]) -> SimulatedFiles:
    method, name, *arguments = step
    if method == "fork":
        return files.after_process_crash()
    try:
        if method == "sync_root":
            files.sync(ROOT)
        else:
            getattr(files, str(method))(name, *arguments)
    except FileNotFoundError:
        pass
    return files


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=20), st.integers(0, 1000))
def test_a_seed_gives_one_state_and_a_sync_of_everything_gives_them_all_the_same(
    sequence: list[tuple[object, ...]], seed: int
) -> None:
    files = SimulatedFiles()
    for step in sequence:
        files = carry_out(files, step)
    tree = files.tree()
    crashed = files.after_machine_crash(seed).tree()
    assert files.after_machine_crash(seed).tree() == crashed
    assert files.after_process_crash().after_machine_crash(seed).tree() == crashed
    assert files.tree() == files.after_process_crash().tree() == tree
    for path in list(files.sizes_in(ROOT)):
        files.sync(ROOT / path)
    files.sync(ROOT)
    assert files.after_machine_crash(seed).tree() == tree


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=20), st.integers(0, 1000))
def test_every_byte_after_a_crash_was_written_there_or_is_zero(sequence: list[tuple[object, ...]], seed: int) -> None:
    written: set[tuple[int, int]] = set()
    size_bytes_max = 0
    files = SimulatedFiles()
    for step in sequence:
        files = carry_out(files, step)
        for data in files.tree().values():
            written.update(enumerate(data or b""))
            size_bytes_max = max(size_bytes_max, len(data or b""))
    for data in files.after_machine_crash(seed).tree().values():
        assert data is not None
        assert len(data) <= size_bytes_max
        assert all(byte == 0 or (position, byte) in written for position, byte in enumerate(data))
