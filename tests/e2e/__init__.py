"""End-to-end tests: dial-chat as a program, the web page in a browser, the documentation, and the benchmarks."""
