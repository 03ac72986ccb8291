"""Checks of a configuration and of what it refers to: programs, servers, tools, the model, files, the database.

    findings          `Finding`: place, code, level, sentence, and a `Fix`
    finding_codes     every code, with its level and title
    subject           what is checked: files, model, database
    check_registry    `CHECKS`, and `inspect`, which runs the checks side by side
    *_checks          the checks, grouped by what they look at

A check returns findings and changes nothing. `docs/doctor.md` has a section for each code.
"""
