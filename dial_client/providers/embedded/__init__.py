"""The embedded model, a demonstration that needs no key: its weights, its process, its prompts, and one policy.

`weights` downloads files into the user's cache folder and checks them. `process` starts ``llama_server.py``, which runs
llama.cpp's own server on a loopback port; ``template.jinja`` is the model's chat template. `decisions` asks for a call
or an answer under a grammar, with ``prompts.toml``; `call_policy` determines which call is made, by
where its values come from; `answers` has all other replies. `local_provider` joins them.
"""

from pathlib import Path

# The chat template of the default model; other models have their own.
TEMPLATE = Path(__file__).with_name("template.jinja")
