"""``dial-chat serve``: a door for other programs, and for people with a browser.

`app` puts it together; `door` decides who comes in; `talking` has the conversations, `completions` what clients of
OpenAI ask for, `asking_people` what waits for a person, `pages` the web page's files, `elsewhere` the other processes
over the same database, `listening` the server around it all. Loaded by that command only.
"""
