"""The servers: one task owns each (`connection`), from opening a transport to leaving nothing behind.

`life` is what becomes of a server over time, `supervision` when it is started again, `session` the SDK's client,
`host_side` and `requests` what a server may ask of the host; `listing`, `lists` and `resources` read what it has,
`news` hears when that changes. `memory` and `pinning` keep in a `drawer` what is known of it from run to run. How
bytes get there is in `transports`, how the host is let in, in `oauth`. `server_manager` holds them all
together.
"""
