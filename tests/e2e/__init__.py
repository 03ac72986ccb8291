"""Tests of what people use: dial-chat as a program, the web page in a browser, the documents, the benchmarks."""
