"""A turn, around the recursion in `dial_client.turns.resolution`.

`running` is a turn under way, `answering` its whole course, `asking` one exchange with the model, `recorder` what has
come of it so far, `landing` how it ends where a limit is met. `attaching` and `instructions` are what goes in before,
`fitting` is what is left out of a request that is too long, `circling` sees a turn go round in circles, `narrating`
and `status` say what it does. `handing_back` is for calls of the caller's own tools, `sampling` for servers that ask
the model.
"""
