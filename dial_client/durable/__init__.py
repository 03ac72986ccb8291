"""Turns that outlive the program that runs them: workflows of DBOS, a library over SQLite or PostgreSQL.

    async with DurableTurns(dial, store, "postgresql://user@host/database") as turns:
        turn = await turns.start(conversation_id, "…")    its id: from here on it is answered, whoever is killed
        answer = await turns.answer(turn)                  in any program that uses the same databases
        live = await turns.begin(conversation_id, "…")    as durable, and a TurnHandle of a turn that runs here

DBOS keeps which turns there are and what came of them, and starts those again that are given up. What a turn has done
is in the store of conversations, and only there: each reply before its calls are run, each round's results before the
model is asked again. Whoever goes on with a turn goes on from there, so nothing that is finished is done twice. A call
that was under way is not made again either: the model is told that it may have run, and decides.

A program that is killed is noticed by its turns' leases, which it no longer renews (`ConversationManager`).
"""

from dial_client.durable.dbos_database import SQLITE_IS_TOO_OLD, beside
from dial_client.durable.results import DurableResult
from dial_client.durable.workflows import DurableTurns

__all__ = ["SQLITE_IS_TOO_OLD", "DurableResult", "DurableTurns", "beside"]
