"""Runs a hostile server: ``python -m tests.support.servers.hostile_stdio BEHAVIOUR ERA``.

BEHAVIOUR is a function of `hostile_starts` or `hostile_calls`, and the server's one tool is ``hurt_old`` or
``hurt_new``; ``well`` behaves, and has ``add``.
"""

from __future__ import annotations

import os
import sys
import threading

from tests.support.servers import hostile_calls, hostile_starts  # noqa: F401 (they fill MOVES)
from tests.support.servers.hostile import LIFETIME, MOVES, Hostile, Well


def main() -> None:
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    behaviour, era = sys.argv[1:]
    if behaviour == "well":
        Well(era).run()
        return
    server = Hostile(era)
    move = MOVES[behaviour]
    setattr(server, move.moment, lambda: move.does(server))
    server.run()


if __name__ == "__main__":
    main()
