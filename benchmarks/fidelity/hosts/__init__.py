"""The hosts of ``make bench-tools``, and the pins of the peers: files for `host_runner`, not modules of this package.

An adapter has ``open_host(base_url, servers, *, code, search)``, an asynchronous context manager of a host with

* ``name(server, tool)``: the name of a tool in programs and calls of the model;
* ``ask(question, history, patterns)``, a coroutine that returns the answer and the new history; on offer are the tools
  that `patterns` name: ``SERVER/TOOL`` or ``SERVER/*``, without those of ``!SERVER/TOOL``;
* ``call(server, tool, arguments)``, a coroutine that calls a tool past the model, and returns its text.
"""
