"""The contents of a release, and the checks before it is published. Nothing here is in the wheel.

``components``: the bills of materials (CycloneDX) of vendored files and of an environment.
"""
