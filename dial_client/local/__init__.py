"""The embedded model: its weights, the process it runs in, its prompts, and which of its calls are made.

`weight_downloads` and `weights` get one file into the user's cache folder and check it; `process` starts
``llama_server.py``, which is llama.cpp's own server behind a loopback port; ``template.jinja`` is the chat template of
this model. `json_prompt_format` and `answer_prompt` are its two prompts, and `call_policy` decides on its calls:
`argument_values` puts their arguments right, and `missing_arguments` tells which of them do not occur.
"""

from pathlib import Path

TEMPLATE = Path(__file__).with_name("template.jinja")
"""The chat template for the model we choose; any other has its own."""
