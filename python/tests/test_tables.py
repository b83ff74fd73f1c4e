"""Tables as dicts."""

import array
from pathlib import Path
from typing import Any

import pytest
import tantalum_db
from tantalum_db import Database

from conftest import Open


def test_a_table_is_much_as_a_dict(db: Database, reopen: Open) -> None:
    table = db["letters"]
    assert not table and len(table) == 0 and table.first() is None
    table[b"b"] = b"2"
    table.update({b"a": b"1", b"c": b"3"})
    table.update((bytes([letter]), b"x") for letter in b"de")
    assert table and len(table) == 5
    assert table[b"a"] == b"1" and b"a" in table and b"z" not in table
    assert table.get(b"z") is None and table.get(b"z", 7) == 7 and table.get(b"a", b"other") == b"1"
    assert list(table) == [b"a", b"b", b"c", b"d", b"e"] and list(reversed(table))[0] == b"e"
    assert table.setdefault(b"a", b"9") == b"1" and table.setdefault(b"f", b"9") == b"9"
    assert table.pop(b"f") == b"9" and table.pop(b"f", None) is None
    del table[b"e"]
    for missing in (lambda: table[b"e"], lambda: table.pop(b"e"), lambda: table.__delitem__(b"e")):
        with pytest.raises(KeyError) as caught:
            missing()
        assert caught.value.args == (b"e",)
    assert table.delete(b"d") and not table.delete(b"d")
    assert table.first() == (b"a", b"1") and table.last() == (b"c", b"3")
    assert table.get_many([b"c", b"x", b"a"]) == [b"3", None, b"1"]
    assert dict(reopen()["letters"].items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    reopened = reopen()
    reopened["copy"].update(reopened["letters"])
    assert list(reopened["copy"].items()) == list(reopened["letters"].items())
    assert reopened["letters"].clear() == 3 and len(reopened["copy"]) == 3


def test_an_update_is_made_as_a_whole_or_not_at_all(db: Database) -> None:
    table = db["t"]
    with pytest.raises(tantalum_db.TooLarge):
        table.update({b"a": b"1", b"k" * 1000: b"2"})
    with pytest.raises(TypeError):
        table.update([(b"a", b"1"), (b"b", 2)])  # type: ignore[list-item]
    assert len(table) == 0


def test_ranges(db: Database) -> None:
    table = db["files"]
    names = [b"bin/ls", b"etc/hosts", b"etc/motd", b"var", b"\xff\xff"]
    table.update([(name, name.upper()) for name in names])
    assert list(table.keys(prefix=b"etc/")) == names[1:3]
    assert list(table.keys(start=b"etc/motd")) == names[2:]
    assert list(table.keys(end=b"etc/motd")) == names[:2]
    assert list(table.keys(prefix=b"etc/", start=b"etc/i", end=b"zzz")) == [b"etc/motd"]
    assert list(table.keys(prefix=b"etc/", start=b"a", end=b"etc/i")) == [b"etc/hosts"]
    assert list(table.keys(prefix=b"\xff")) == names[4:]
    assert list(table.items(reverse=True, limit=2)) == [(b"\xff\xff", b"\xff\xff"), (b"var", b"VAR")]
    assert list(table.values(start=b"c", limit=1)) == [b"ETC/HOSTS"]
    assert list(table.keys(start=b"z", end=b"a")) == [] and list(table.keys(limit=0)) == []
    assert table.delete_range(prefix=b"etc/") == 2 and table.delete_range(start=b"c", end=b"w") == 1
    assert list(table) == [b"bin/ls", b"\xff\xff"]
    with pytest.raises(TypeError, match="clear"):
        table.delete_range()


def test_iteration_shows_one_moment_whatever_is_written_meanwhile(db: Database) -> None:
    table = db["numbers"]
    table.update([(number.to_bytes(4, "big"), bytes(100)) for number in range(5000)])
    rows, backwards = table.items(), table.keys(reverse=True)
    seen = [next(rows)]
    table.clear()
    table[b"new"] = b"row"
    seen += rows
    assert len(seen) == 5000 and seen[4999] == ((4999).to_bytes(4, "big"), bytes(100))
    assert [int.from_bytes(key, "big") for key in backwards] == list(range(4999, -1, -1))
    assert next(rows, None) is None and list(table) == [b"new"]


def test_iterators_let_go_of_their_snapshot_at_the_end(db: Database) -> None:
    db["t"][b"a"] = b"1"
    used, unused = db["t"].items(), db["t"].items()
    assert list(used) == [(b"a", b"1")] and next(unused) == (b"a", b"1")
    with pytest.raises(tantalum_db.InUse):
        db.drop_table("t")
    del unused
    db.drop_table("t")


def test_whatever_has_the_buffer_protocol_is_taken(db: Database) -> None:
    table = db["t"]
    table[bytearray(b"key")] = memoryview(b"_value_")[1:-1]
    assert table[memoryview(b"key")] == b"value"
    table[b"reversed"] = memoryview(b"abc")[::-1]
    table[b"numbers"] = array.array("H", [1, 2])
    assert table[b"reversed"] == b"cba" and table[b"numbers"] == array.array("H", [1, 2]).tobytes()
    table[b""] = b""
    assert table[b""] == b""


@pytest.mark.parametrize("wrong", ["key", 7, None, ["k"], ("k",)])
def test_what_is_not_bytes_is_refused(db: Database, wrong: Any) -> None:
    table = db["t"]
    for call in (
        lambda: table[wrong],
        lambda: table.__setitem__(wrong, b""),
        lambda: table.__setitem__(b"", wrong),
        lambda: table.get(wrong),
        lambda: wrong in table,
        lambda: table.get_many([wrong]),
    ):
        with pytest.raises(TypeError, match="encode" if isinstance(wrong, str) else "bytes"):
            call()
    assert len(table) == 0


def test_large_values_are_read_in_part_and_viewed_without_a_copy(db: Database) -> None:
    table = db["films"]
    film = bytes(range(256)) * 8000
    table[b"metropolis"] = film
    assert table[b"metropolis"] == film and list(table.items()) == [(b"metropolis", film)]
    assert table.get_range(b"metropolis", 1_000_000, 1_000_010) == film[1_000_000:1_000_010]
    assert table.get_range(b"metropolis", len(film) - 5) == film[-5:]
    assert table.get_range(b"metropolis", 5, 2) == b"" and table.get_range(b"none") is None
    view = table.view(b"metropolis")
    assert view is not None and view.readonly and view.nbytes == len(film)
    table[b"metropolis"] = b"remake"
    db.close()
    assert view == film and view[-1:] == film[-1:]
    with pytest.raises(TypeError):
        view[0] = 1
    part = view[10:20]
    del view
    assert bytes(part) == film[10:20]


def test_compare_and_swap_and_increment(db: Database) -> None:
    table = db["t"]
    assert table.compare_and_swap(b"lease", None, b"alice")
    assert not table.compare_and_swap(b"lease", None, b"bob")
    assert table.compare_and_swap(b"lease", b"alice", None) and b"lease" not in table
    assert table.increment(b"visits") == 1 and table.increment(b"visits", -3) == -2
    assert int.from_bytes(table[b"visits"], "little", signed=True) == -2
    table[b"word"] = b"no number"
    with pytest.raises(ValueError, match="eight bytes"):
        table.increment(b"word")
    with pytest.raises(OverflowError):
        table.increment(b"visits", 1 << 64)
    table.insert(b"new", b"1")
    with pytest.raises(tantalum_db.AlreadyExists) as caught:
        table.insert(b"new", b"2")
    assert caught.value.kind == "AlreadyExists" and table[b"new"] == b"1"


def test_tables_come_and_go(db: Database, path: Path) -> None:
    assert db.path == path and db.tables() == []
    with pytest.raises(tantalum_db.NotFound, match="no table"):
        db.table("accounts", create=False)
    accounts = db.table("accounts")
    assert accounts.name == "accounts" and "accounts" in repr(accounts) and db.tables() == ["accounts"]
    db.drop_table("accounts")
    with pytest.raises(tantalum_db.NotFound):
        accounts[b"a"]
    with pytest.raises(tantalum_db.InvalidInput):
        db.table("")
