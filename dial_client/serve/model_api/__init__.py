"""The APIs of models, for programs of other people: the model with the servers' tools, behind the APIs they know.

Each API has a module for its routes and one that parses its requests. Both build on what the APIs share:
`answer_request` is a parsed request, `offered_models` are the models it may name, `message_parts` the parts of
messages, and `answer_turns` runs the turn of a request and yields the parts of its answer, which an API writes in its
own form.
"""
