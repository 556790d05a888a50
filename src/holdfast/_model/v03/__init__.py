"""Protocol 0.3: its types, and their conversion to and from the model, which is that of 1.0.

The JSON of 0.3 has two forms. JSON-RPC uses ``kind``, ``parts`` and lower-case names of states
and roles; HTTP+JSON uses the ProtoJSON of the gRPC service, with ``content``, ``TASK_STATE_…``
(CANCELLED with two L) and names such as ``tasks/ID``. Agents mix them, so replies are accepted in
either form over any binding; requests use the binding's own form. gRPC has the members of the
second form, and resource names in place of paths.

Members that 0.3 cannot express and no agent uses are omitted from requests: the media type and
file name of text and data.
"""
