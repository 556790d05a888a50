"""A journal of somebody else's, in memory."""

from msgspec.structs import asdict, replace

from holdfast._journal.protocol import utc
from holdfast.errors import JournalError
from holdfast.extend import RecordUpdate


class Foreign:
    """Keeps the rules of journals, as far as something in memory can."""

    stores_messages = False
    lease = 30.0

    def __init__(self, records=None):
        self.records = {} if records is None else records
        self.is_closed = False

    async def begin(self, record):
        for there in self.records.values():
            is_message = there.message_id == record.message_id
            is_label = record.label is not None and there.label == record.label
            if (is_message or is_label) and there.outcome != "not_sent":
                raise JournalError("it is there", reason="exists", message_id=there.message_id)
        self.records[record.message_id] = record

    async def update(self, message_id, generation, update):
        record = self.records.get(message_id)
        if record is None or record.outcome is not None or record.generation != generation:
            return False
        new = {name: value for name, value in asdict(update).items() if value is not None}
        self.records[message_id] = replace(record, **new)
        return True

    async def renew(self, held, lease_until):
        update = RecordUpdate(lease_until=lease_until)
        return {name for name, generation in held if await self.update(name, generation, update)}

    async def claim(self, message_id, *, now, lease_until):
        record = self.records.get(message_id)
        if record is None:
            raise JournalError("not there", reason="missing", message_id=message_id)
        if record.outcome is not None:
            raise JournalError("it is over", reason="finished", message_id=message_id)
        if record.lease_until > now:
            until = utc(record.lease_until)
            raise JournalError("held", reason="held", message_id=message_id, held_until=until)
        generation = record.generation + 1
        record = replace(record, generation=generation, lease_until=lease_until)
        self.records[message_id] = record
        return record

    async def find(self, message_id):
        return self.records.get(message_id)

    async def unfinished(self, agent=None):
        found = [
            record
            for record in self.records.values()
            if record.outcome is None and agent in {None, record.agent}
        ]
        return sorted(found, key=lambda one: one.began)

    async def find_label(self, label):
        found = [one for one in self.records.values() if one.label == label]
        may_be_sent = [one for one in found if one.outcome != "not_sent"]
        return max(may_be_sent or found, key=lambda one: one.began, default=None)

    async def close(self):
        self.is_closed = True
