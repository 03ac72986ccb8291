"""The adapters of hosts, and their pins: files for `adapter_runner`, not modules of this package.

An adapter has ``open_host(base_url, servers)``, an asynchronous context manager that yields ``ask(question, history,
on_text)``, a coroutine that returns the answer and the new history. `on_text` is None, or gets the pieces of a stream.
"""
