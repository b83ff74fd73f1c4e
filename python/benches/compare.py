"""Gets, durable puts and scans from Python: Tantalum beside LMDB (lmdb) and RocksDB (rocksdict).

Each engine has the same rows, keys of 16 bytes in random order and values of 100, in a database of its own in the same
directory. All rows are in memory. A put is durable when it returns. The engines take turns, round by round; the table
shows the median of the rounds.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tantalum_db

Key = bytes
Operations = dict[str, Callable[[list[Key]], int]]

VALUE_BYTES = 100
THREADS = 64
TASKS = 128
CACHE_BYTES = 256 << 20


def by_threads(put: Callable[[list[Key]], int]) -> Callable[[list[Key]], int]:
    """Puts from several threads at once."""

    def put_all(keys: list[Key]) -> int:
        with ThreadPoolExecutor(THREADS) as pool:
            return sum(pool.map(put, (keys[part::THREADS] for part in range(THREADS))))

    return put_all


class Tantalum:
    name = "tantalum"

    def __init__(self, directory: Path) -> None:
        self.db = tantalum_db.open(directory, buffer_pool_bytes=CACHE_BYTES)
        self.table = self.db["t"]

    def load(self, rows: list[tuple[Key, bytes]]) -> None:
        self.db.bulk_load("t", sorted(rows))

    def operations(self) -> Operations:
        def get(keys: list[Key]) -> int:
            table = self.table
            return sum(table.get(key) is not None for key in keys)

        def get_in_snapshot(keys: list[Key]) -> int:
            with self.db.snapshot() as snapshot:
                table = snapshot["t"]
                return sum(table.get(key) is not None for key in keys)

        def get_in_transaction(keys: list[Key]) -> int:
            with self.db.transaction() as tx:
                table = tx["t"]
                return sum(table.get(key) is not None for key in keys)

        def put(keys: list[Key]) -> int:
            table, value = self.table, random.randbytes(VALUE_BYTES)
            for key in keys:
                table[key] = value
            return len(keys)

        async def commit(keys: list[Key]) -> int:
            for key in keys:
                async with self.db.transaction() as tx:
                    tx[self.table][key] = key
            return len(keys)

        async def commit_in_tasks(keys: list[Key]) -> int:
            return sum(await asyncio.gather(*(commit(keys[part::TASKS]) for part in range(TASKS))))

        def commit_in_advance(keys: list[Key]) -> int:
            tickets = []
            for key in keys:
                tx = self.db.transaction()
                tx[self.table][key] = key
                tickets.append(tx.commit_async())
            for ticket in tickets:
                ticket.wait()
            return len(tickets)

        def scan(keys: list[Key]) -> int:
            return sum(1 for _ in self.table.items())

        return {
            "get": get,
            "get, one snapshot": get_in_snapshot,
            "get, one transaction": get_in_transaction,
            "put, durable": put,
            f"put, durable, {THREADS} threads": by_threads(put),
            f"put, durable, {TASKS} tasks": lambda keys: asyncio.run(commit_in_tasks(keys)),
            "put, durable, awaited at the end": commit_in_advance,
            "scan": scan,
        }

    def close(self) -> None:
        self.db.close()


class Lmdb:
    name = "lmdb"

    def __init__(self, directory: Path) -> None:
        import lmdb

        self.env = lmdb.open(str(directory), map_size=1 << 30)

    def load(self, rows: list[tuple[Key, bytes]]) -> None:
        with self.env.begin(write=True) as txn:
            for key, value in rows:
                txn.put(key, value)

    def operations(self) -> Operations:
        def get(keys: list[Key]) -> int:
            found = 0
            for key in keys:
                with self.env.begin() as txn:
                    found += txn.get(key) is not None
            return found

        def get_in_snapshot(keys: list[Key]) -> int:
            with self.env.begin() as txn:
                return sum(txn.get(key) is not None for key in keys)

        def get_in_transaction(keys: list[Key]) -> int:
            with self.env.begin(write=True) as txn:
                return sum(txn.get(key) is not None for key in keys)

        def put(keys: list[Key]) -> int:
            value = random.randbytes(VALUE_BYTES)
            for key in keys:
                with self.env.begin(write=True) as txn:
                    txn.put(key, value)
            return len(keys)

        def scan(keys: list[Key]) -> int:
            with self.env.begin() as txn:
                return sum(1 for _ in txn.cursor())

        return {
            "get": get,
            "get, one snapshot": get_in_snapshot,
            "get, one transaction": get_in_transaction,
            "put, durable": put,
            f"put, durable, {THREADS} threads": by_threads(put),
            "scan": scan,
        }

    def close(self) -> None:
        self.env.close()


class RocksDict:
    name = "rocksdict"

    def __init__(self, directory: Path) -> None:
        from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteOptions

        options, table = Options(raw_mode=True), BlockBasedOptions()
        table.set_block_cache(Cache(CACHE_BYTES))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.db = Rdict(str(directory), options)
        durable = WriteOptions()
        durable.sync = True
        self.db.set_write_options(durable)

    def load(self, rows: list[tuple[Key, bytes]]) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self.db.write(batch)
        self.db.flush()

    def operations(self) -> Operations:
        def get(keys: list[Key]) -> int:
            db = self.db
            return sum(db.get(key) is not None for key in keys)

        def get_in_snapshot(keys: list[Key]) -> int:
            snapshot = self.db.snapshot()
            return sum(snapshot[key] is not None for key in keys)

        def put(keys: list[Key]) -> int:
            db, value = self.db, random.randbytes(VALUE_BYTES)
            for key in keys:
                db[key] = value
            return len(keys)

        def scan(keys: list[Key]) -> int:
            return sum(1 for _ in self.db.items())

        return {
            "get": get,
            "get, one snapshot": get_in_snapshot,
            "put, durable": put,
            f"put, durable, {THREADS} threads": by_threads(put),
            "scan": scan,
        }

    def close(self) -> None:
        self.db.close()


ENGINES: dict[str, Callable[[Path], Any]] = {engine.name: engine for engine in (Tantalum, Lmdb, RocksDict)}


def microseconds_each(operation: Callable[[list[Key]], int], keys: list[Key]) -> float:
    begun = time.perf_counter()
    done = operation(keys)
    took = time.perf_counter() - begun
    assert done >= len(keys), "every key is there"
    return took / done * 1e6


def measure(directory: Path, engines: list[str], rows: int, puts: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    keys = [random.randbytes(16) for _ in range(rows)]
    opened = {}
    for name in engines:
        engine = ENGINES[name](directory / name)
        engine.load([(key, random.randbytes(VALUE_BYTES)) for key in keys])
        opened[name] = engine
    results: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for name, engine in opened.items():
            for operation, call in engine.operations().items():
                some = random.sample(keys, puts if operation.startswith("put") else rows)
                took = microseconds_each(call, some)
                # The first round warms up.
                if number > 0:
                    results.setdefault(operation, {}).setdefault(name, []).append(took)
    for engine in opened.values():
        engine.close()
    return results


def print_table(results: dict[str, dict[str, list[float]]], engines: list[str]) -> None:
    print(f"| microseconds for each | {' | '.join(engines)} |")
    print("|---" * (len(engines) + 1) + "|")
    for operation, times in results.items():
        cells = [f"{statistics.median(times[name]):.2f}" if name in times else "" for name in engines]
        print(f"| {operation} | {' | '.join(cells)} |")


def available(names: list[str]) -> list[str]:
    modules = {"tantalum": "tantalum_db", "lmdb": "lmdb", "rocksdict": "rocksdict"}
    found = []
    for name in names:
        try:
            __import__(modules[name])
            found.append(name)
        except ImportError:
            print(f"{name} is left out: pip install {modules[name]}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--puts", type=int, default=2_000, help="durable puts in a round; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--directory", type=Path, default=Path("."), help="where databases are made; default: here")
    parser.add_argument("--json", type=Path, help="a file for all rounds' times, in microseconds")
    arguments = parser.parse_args()
    engines = available(arguments.engines.split(","))
    directory = Path(tempfile.mkdtemp(prefix="tantalum-bench-", dir=arguments.directory))
    try:
        results = measure(directory, engines, arguments.rows, arguments.puts, arguments.rounds)
    finally:
        shutil.rmtree(directory)
    print_table(results, engines)
    if arguments.json is not None:
        report = {"rows": arguments.rows, "value_bytes": VALUE_BYTES, "microseconds": results}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
