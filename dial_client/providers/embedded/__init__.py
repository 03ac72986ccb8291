"""The embedded model: its weights, its process, its prompts, and the rules that decide which of its calls are made.

`weight_downloads` and `weights` download one file into the user's cache folder and check it. `process` starts
``llama_server.py``, which runs llama.cpp's own server on a loopback port; ``template.jinja`` is the model's chat
template. `json_prompt_format` and `answer_prompt` build its two prompts. `call_policy` decides on its calls:
`argument_values` corrects their arguments, and `missing_arguments` finds arguments that the conversation does not have.
"""

from pathlib import Path

TEMPLATE = Path(__file__).with_name("template.jinja")
"""The chat template of the default model; other models have their own."""
