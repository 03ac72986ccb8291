"""The files of the user and of the working folder, and which of them the user trusts.

`configuration_files` finds configurations, `folder_texts` the texts for the model. `trust_review` says what of them can
be used, `trust_summary` shows what they would do, and `trust_prompt` asks.
"""
