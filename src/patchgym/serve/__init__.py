"""Tasks, sandboxes and grading over HTTP, for agents and trainers in any language.

::

    client       the client as a policy: it is asked for an action, and answers when it likes
    session      one task under way for one client: a rollout whose policy is that client
    desk         all sessions: who may open one, which are idle, what they cost
    sheets       what goes over the wire; of a task, its grading and its reward only what an agent may know
    problems     every refusal, with what to do about it
    operations   the table of operations, from which the routes, the OpenAPI document and its page are made
    app          the operations as an ASGI application, and what guards them
    keys         tokens and whose they are
    serving      on a socket, until Ctrl-C; nothing is left running

A session is a rollout as ``patchgym rollout`` makes them: the same tools, limits, grading, reward and record.
"""
