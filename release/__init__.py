"""What a release consists of, and how it is checked before it is published. Nothing here is in the wheel.

``components``: the bills of materials (CycloneDX) of vendored files and of an environment.
"""
