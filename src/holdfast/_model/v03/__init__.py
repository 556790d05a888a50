"""Protocol 0.3: its own types, and what they are in the model, which is 1.0's.

The JSON of 0.3 comes in two forms. JSON-RPC has ``kind``, ``parts`` and lower-case names of states
and roles; HTTP+JSON has the ProtoJSON of the gRPC service, with ``content``, ``TASK_STATE_…``
(CANCELLED with two L) and names such as ``tasks/ID``. Agents mix them, so that what comes is read
in either form, whatever the binding; what is sent has the binding's own. gRPC itself has the
members of the second form, and names in place of paths.

What 0.3 has no word for, and nobody acts upon, is left out of what is sent: the media type and
file name of text and data.
"""
