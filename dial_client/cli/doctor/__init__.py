"""Checks a configuration and what it refers to: programs, servers, tools, the model, files, the database.

    findings          `Finding`: place, code, level, sentence, and a `Fix`; every code, with its level and title
    subject           `Subject`: the configuration, model and database to check
    check_registry    `CHECKS`, and `inspect`, which runs the checks concurrently
    *_checks          the checks, grouped by subject
    doctor_report     the output of ``dial-chat doctor``
    bug_report        the file of ``dial-chat bug-report``

A check returns findings and changes nothing. `docs/doctor.md` has a section for each code.
"""
