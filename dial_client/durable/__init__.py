"""Turns that outlive the program that runs them: workflows of DBOS, a library over SQLite or PostgreSQL.

    async with DurableTurns(dial, store, "postgresql://user@host/database") as turns:
        turn_id = await turns.submit(conversation_id, "…")   from here on it is answered, whoever is killed
        result = await turns.result(turn_id)                  in any program that uses the same databases
        turn = await turns.start(conversation_id, "…")        as durable, and the TurnHandle of a turn that runs here

DBOS stores which turns there are and their results, and starts abandoned turns again. The messages of a turn are in the
store of conversations, and only there: each reply before its calls are run, the results of each round before the model
is asked again. Whoever resumes a turn goes on from there, so nothing that is finished is done twice. A call that was
under way is not made again either: the model is told that it may have run, and decides.

A program that was killed is recognized by the leases of its turns, which it no longer renews (`ConversationManager`).
"""

from dial_client.durable.dbos_database import SQLITE_IS_TOO_OLD, default_database
from dial_client.durable.results import DurableResult
from dial_client.durable.timings import DurableTimings
from dial_client.durable.workflows import DurableTurns

__all__ = ["SQLITE_IS_TOO_OLD", "DurableResult", "DurableTimings", "DurableTurns", "default_database"]
