"""The pictures of the terminal in docs/terminal; `make pictures` draws them again, from real runs.

`scenes` has a function for each picture: it runs `dial-chat` with real servers (`trip_servers`) and a model endpoint on
loopback, and yields the screen. `svg_writer` draws a screen as SVG. `animation` draws all screens of a run. `day` is a
longer run, to look at before a release.
"""
