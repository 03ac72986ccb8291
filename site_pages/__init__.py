"""Pages of the documentation site that are made from the program and from files outside of docs/.

`python -m site_pages FOLDER` writes all pages. `root_pages` brings files such as the changelog into the site,
`command_pages` writes the reference of commands, `api_pages` that of the Python API, `llms_text` the list of pages for
models.
"""
