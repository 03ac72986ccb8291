"""The pictures of the terminal in docs/terminal: `make pictures` draws them anew, from real runs.

`scenes` has a function for each picture: it runs `dial-chat` with real servers (`trip_servers`) and a model endpoint on
loopback, and returns the screen. `svg_writer` draws a screen.
`animation` draws a whole run, screen after screen.
"""
