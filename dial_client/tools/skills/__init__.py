"""Agent Skills: folders with a ``SKILL.md``, of the user and of MCP servers, whose texts the model reads on demand.

`skill_document` reads a ``SKILL.md``, `skill_folders` the folders on this machine. `server_skills` are the skills of
servers (the extension ``io.modelcontextprotocol/skills``, SEP-2640), with `skill_requests`, `skill_manifest` and
`skill_pins`. `skill_library` names all skills, and has the tool of the model; `skill_lists` is what a program reads of
it. Nothing in a skill is run by this package.
"""
