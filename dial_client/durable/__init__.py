"""Turns that survive the process that runs them, as workflows of the library DBOS in SQLite or PostgreSQL.

    async with DurableTurns(dial, store, "postgresql://user@host/database") as turns:
        turn_id = await turns.submit(conversation_id, "…")   durable: it is answered even if the process is killed
        result = await turns.result(turn_id)                  in any process that uses the same databases
        turn = await turns.start(conversation_id, "…")        durable too, with the TurnHandle of a turn in this process

DBOS stores the list of turns and their results, and restarts abandoned turns. Only the store of conversations has the
messages of a turn: each reply before its calls run, and the results of each round before the model is asked again. A
process that resumes a turn continues from these messages, so nothing that has finished is repeated. An unfinished call
is not repeated either: the model is told that the call may have run, and decides.

A killed process is detected because it does not renew the leases of its turns any more (`ConversationManager`).
"""

from dial_client.durable.dbos_database import SQLITE_IS_TOO_OLD, default_database
from dial_client.durable.rows import DurableResult
from dial_client.durable.workflows import DurableTimings, DurableTurns

__all__ = ["SQLITE_IS_TOO_OLD", "DurableResult", "DurableTimings", "DurableTurns", "default_database"]
