"""The chats of other programs' front ends: AG-UI, and the AI SDK of Vercel. Their streams are written in `sinks`."""
