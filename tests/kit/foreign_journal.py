"""A journal of another implementation, in memory."""

from msgspec.structs import asdict, replace

from holdfast._aio.env import wall_time
from holdfast._journal.protocol import utc
from holdfast.errors import JournalError
from holdfast.extend import RecordUpdate, is_same_agent


def read(record):
    """Return a record as it is read now."""
    lease_left = 0.0 if record.outcome else max(0.0, record.lease_until - wall_time())
    return replace(record, lease_left=lease_left)


class Foreign:
    """Follows the rules of journals, as far as memory can."""

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
        if (replaced := self.records.get(record.message_id)) is not None:
            record = replace(record, generation=replaced.generation + 1)
        return self.put(record)

    def put(self, record):
        now = wall_time()
        begun = replace(record, began=now, lease_until=now + self.lease)
        self.records[record.message_id] = begun
        return read(begun)

    async def update(self, message_id, generation, update):
        record = self.records.get(message_id)
        if record is None or record.outcome is not None or record.generation != generation:
            return False
        new = {name: value for name, value in asdict(update).items() if value is not None}
        if new.pop("releases"):
            new["lease_until"] = 0.0
        self.records[message_id] = replace(record, **new)
        return True

    async def renew(self, held):
        renewed = set()
        for name, generation in held:
            if await self.update(name, generation, RecordUpdate()):
                until = wall_time() + self.lease
                self.records[name] = replace(self.records[name], lease_until=until)
                renewed.add(name)
        return renewed

    async def claim(self, message_id):
        now = wall_time()
        record = self.records.get(message_id)
        if record is None:
            raise JournalError("not there", reason="missing", message_id=message_id)
        if record.outcome not in {None, "unknown"}:
            raise JournalError("it is over", reason="finished", message_id=message_id)
        if record.outcome is None and record.lease_until > now:
            until = utc(record.lease_until)
            raise JournalError("held", reason="held", message_id=message_id, held_until=until)
        generation = record.generation + 1
        opened = {"outcome": None, "detail": None, "lease_until": now + self.lease}
        record = replace(record, generation=generation, **opened)
        self.records[message_id] = record
        return read(record)

    async def find(self, message_id):
        record = self.records.get(message_id)
        return None if record is None else read(record)

    async def unfinished(self, agent=None):
        found = [
            read(record)
            for record in self.records.values()
            if record.outcome in {None, "unknown"}
            and (agent is None or is_same_agent(record.agent, agent))
        ]
        return sorted(found, key=lambda one: one.began)

    async def find_label(self, label):
        found = [one for one in self.records.values() if one.label == label]
        may_be_sent = [one for one in found if one.outcome != "not_sent"]
        newest = max(may_be_sent or found, key=lambda one: one.began, default=None)
        return None if newest is None else read(newest)

    async def close(self):
        self.is_closed = True
