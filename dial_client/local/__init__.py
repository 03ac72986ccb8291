"""The embedded model: where its weights come from, the process it runs in, and how it is spoken to.

The files in the order in which they matter: `sources` and `weights` get one file into the user's cache folder and check
it; `process` starts ``serve.py``, which is llama.cpp's own server behind a loopback port; ``template.jinja`` is how a
conversation is put into words for this model.
"""

from pathlib import Path

TEMPLATE = Path(__file__).with_name("template.jinja")
"""The chat template for the model we choose; any other has its own."""
