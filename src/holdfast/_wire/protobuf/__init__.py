"""Protocol buffers: messages of both protocol versions, converted to and from the model's values.

`schema_v1` and `schema_v03` are tables of messages, of the types in `schema`. `messages` creates
classes from them at first use, in a descriptor pool of their own: a program may have generated
classes of the same names, from an SDK, and protobuf allows each name once per pool. `reading` and
`writing` convert between values and messages of any classes; `descriptors` matches the members of
both. `fields` scans the bytes, and `values` converts JSON values and timestamps. `details` decodes
the details of errors, and `cards` the signed part of a card.

protobuf comes with the extra ``grpc``; it is imported when a message is first read or written.
"""
