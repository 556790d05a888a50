"""Protocol buffers: the messages of both versions, and the model's values made of them and back.

`schema` says what a table of messages holds, `schema_v1` and `schema_v03` are the tables, and
`messages` makes classes of them at their first use, in a pool of their own: a program may have
generated classes of the same names, from an SDK, and protobuf takes each name once per pool.
`reading` and `writing` turn messages into values and back, whoever's classes they are, by what
`descriptors` tells of both; `fields` goes through the bytes, and `values` has the JSON and the
times in them. `sizes` refuses what would take too much memory, `details` reads what errors say,
and `cards` what of a card may have been signed.

protobuf comes with the extra ``grpc``; it is imported when a message is first read or written.
"""
