"""Commits that tasks of asyncio await."""

import asyncio
import threading
from pathlib import Path

import pytest
import tantalum_db
from tantalum_db import Database, Ticket

from conftest import Open


def commit_async(db: Database, key: bytes, value: bytes = b"") -> Ticket:
    tx = db.transaction()
    tx["t"][key] = value
    return tx.commit_async()


def test_tickets_tell_threads(db: Database) -> None:
    tickets = [commit_async(db, b"%d" % number) for number in range(100)]
    places = [ticket.wait() for ticket in tickets]
    assert None not in places and places == sorted(set(places), key=lambda place: place or 0)
    assert all(ticket.done and ticket.wait() == ticket.position == place for ticket, place in zip(tickets, places))
    assert repr(tickets[0]) == "<tantalum_db.Ticket done>"
    assert db.transaction().commit_async().wait() is None


def test_tasks_await_commits(db: Database, reopen: Open) -> None:
    db["t"]

    async def write(number: int) -> int | None:
        ticket = commit_async(db, b"%d" % number)
        place = await ticket
        assert ticket.done and await ticket == place
        return place

    async def write_all() -> "list[int | None]":
        return await asyncio.gather(*(write(number) for number in range(500)))

    assert len(set(asyncio.run(write_all()))) == 500
    assert len(reopen()["t"]) == 500


def test_an_async_block_commits_or_rolls_back(db: Database) -> None:
    async def run() -> None:
        async with db.transaction() as tx:
            tx["t"][b"a"] = b"1"
        assert db["t"][b"a"] == b"1" and tx.is_over
        with pytest.raises(ZeroDivisionError):
            async with db.transaction() as tx:
                tx["t"][b"a"] = b"2"
                1 / 0
        assert db["t"][b"a"] == b"1"
        async with db.transaction() as tx:
            tx["t"][b"a"] = b"3"
            tx.rollback()
        assert db["t"][b"a"] == b"1"

    asyncio.run(run())


def test_a_task_that_is_cancelled_does_not_take_its_commit_back(db: Database) -> None:
    db["t"]

    async def run() -> None:
        async def wait_for(ticket: Ticket) -> None:
            await ticket

        tickets = [commit_async(db, b"%d" % number) for number in range(50)]
        tasks = [asyncio.ensure_future(wait_for(ticket)) for ticket in tickets]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for ticket in tickets:
            await ticket

    asyncio.run(run())
    assert len(db["t"]) == 50


def test_a_loop_that_ends_before_the_commit_is_durable_is_let_go(db: Database) -> None:
    """Whether the commits end before their loop is the device's doing; in both cases nothing is printed, and all are there."""
    db["t"]

    async def start(number: int) -> None:
        asyncio.ensure_future(asyncio.wait_for(asyncio.shield(awaited(commit_async(db, b"%d" % number))), 60))
        await asyncio.sleep(0)

    async def awaited(ticket: Ticket) -> None:
        await ticket

    for number in range(30):
        asyncio.run(start(number))
    db.checkpoint()
    assert len(db["t"]) == 30


def test_awaiting_goes_on_while_other_threads_commit(db: Database) -> None:
    db["t"]

    def write(thread: int) -> None:
        async def run() -> None:
            for number in range(50):
                await commit_async(db, b"%d-%d" % (thread, number))

        asyncio.run(run())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(db["t"]) == 200


def test_closing_beside_a_loop_tells_all_commits(path: Path) -> None:
    async def run() -> None:
        db = tantalum_db.open(path, log_bytes=8 << 20)
        db["t"]
        tickets = [commit_async(db, b"%d" % number) for number in range(50)]
        tasks = [asyncio.ensure_future(awaited(ticket)) for ticket in tickets]
        await asyncio.sleep(0)
        db.close()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)

    async def awaited(ticket: Ticket) -> None:
        await ticket

    asyncio.run(run())
    with tantalum_db.open(path) as db:
        assert len(db["t"]) == 50
