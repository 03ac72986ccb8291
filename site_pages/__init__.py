"""Generates pages of the documentation site from the program and from files outside of docs/.

`python -m site_pages FOLDER` writes all pages. `root_pages` adds files such as the changelog to the site,
`command_pages` writes the reference of commands, `api_pages` the reference of the Python API, `llms_text` the list of
pages for models.
"""
