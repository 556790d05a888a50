"""The rules of journals are checked: one that breaks a rule is named."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.kit.foreign_journal import Foreign
from tests.kit.virtual_env import wall_time

from holdfast.errors import JournalError
from holdfast.testing import check_journal


async def test_a_journal_that_keeps_the_rules_is_fine():
    records = {}
    made = []

    def make():
        made.append(Foreign(records))
        return made[-1]

    await check_journal(make)

    assert records
    assert all(one.is_closed for one in made)


class ForgetsTheDigest(Foreign):
    async def begin(self, record):
        return await super().begin(replace(record, digest=None))


class BeginsTwice(Foreign):
    async def begin(self, record):
        self.records.pop(record.message_id, None)
        return await super().begin(record)


class KnowsNoLabels(Foreign):
    async def begin(self, record):
        before = await self.find_label(record.label)
        if before is not None and before.message_id != record.message_id:
            return self.put(record)
        return await super().begin(record)


class KnowsLabelsByAgent(Foreign):
    async def begin(self, record):
        before = await self.find_label(record.label)
        if before is not None and before.agent != record.agent:
            return self.put(record)
        return await super().begin(record)


class NeverSendsAgain(Foreign):
    async def begin(self, record):
        if record.message_id in self.records:
            raise JournalError(reason="exists", message_id=record.message_id)
        return await super().begin(record)


class BeginsAgainWithTheSameGeneration(Foreign):
    async def begin(self, record):
        begun = await super().begin(record)
        self.records[record.message_id] = replace(begun, generation=1)
        return replace(begun, generation=1)


class GivesNoReason(Foreign):
    async def begin(self, record):
        try:
            return await super().begin(record)
        except JournalError as error:
            raise JournalError(error.message) from None


class RaisesWhatItLikes(Foreign):
    async def claim(self, message_id):
        if message_id not in self.records:
            raise KeyError(message_id)
        return await super().claim(message_id)


class LooksBeforeItLeaps(Foreign):
    async def begin(self, record):
        twin = Foreign(dict(self.records))
        begun = await twin.begin(record)
        await asyncio.sleep(0)
        self.records[record.message_id] = begun
        return begun


class ClaimsSlowly(Foreign):
    async def claim(self, message_id):
        twin = Foreign(dict(self.records))
        record = await twin.claim(message_id)
        await asyncio.sleep(0)
        self.records[message_id] = record
        return record


class UpdatesWhatIsOver(Foreign):
    async def update(self, message_id, generation, update):
        record = self.records.get(message_id)
        if record is not None and record.outcome is not None:
            self.records[message_id] = replace(record, outcome=update.outcome)
            return True
        return await super().update(message_id, generation, update)


class UpdatesAnyGeneration(Foreign):
    async def update(self, message_id, generation, update):
        record = self.records.get(message_id)
        return await super().update(message_id, record and record.generation, update)


class ForgetsWhatIsNone(Foreign):
    async def update(self, message_id, generation, update):
        is_there = await super().update(message_id, generation, update)
        if is_there and update.detail is None:
            record = self.records[message_id]
            self.records[message_id] = replace(record, detail=None)
        return is_there


class RenewsAll(Foreign):
    async def renew(self, held):
        await super().renew(held)
        return {name for name, _ in held}


class RenewsOnlyInWord(Foreign):
    async def renew(self, held):
        before = dict(self.records)
        renewed = await super().renew(held)
        self.records.update(before)
        return renewed


class ClaimsWhatIsHeld(Foreign):
    async def claim(self, message_id):
        if message_id in self.records:
            self.records[message_id] = replace(self.records[message_id], lease_until=0.0)
        return await super().claim(message_id)


class NeverReleases(Foreign):
    async def update(self, message_id, generation, update):
        return await super().update(message_id, generation, replace(update, releases=False))


class HoldsForEver(Foreign):
    async def claim(self, message_id):
        if (record := self.records.get(message_id)) and record.lease_until:
            until = wall_time() + self.lease
            self.records[message_id] = replace(record, lease_until=until)
        return await super().claim(message_id)


class ReleasesAfterTheFirstLease(Foreign):
    async def claim(self, message_id):
        record = self.records.get(message_id)
        if record is not None and record.began + self.lease <= wall_time():
            self.records[message_id] = replace(record, lease_until=0.0)
        return await super().claim(message_id)


class HoldsFinishedCalls(Foreign):
    async def find(self, message_id):
        record = await super().find(message_id)
        return record and replace(record, lease_left=max(0.0, record.lease_until - wall_time()))


class BeginsSilently(Foreign):
    async def begin(self, record):
        await super().begin(record)


class KeepsTheGeneration(Foreign):
    async def claim(self, message_id):
        record = await super().claim(message_id)
        self.records[message_id] = replace(record, generation=1)
        return record


class ListsNewestFirst(Foreign):
    async def unfinished(self, agent=None):
        return (await super().unfinished(agent))[::-1]


class ListsAllAgents(Foreign):
    async def unfinished(self, _agent=None):
        return await super().unfinished()


class ListsByTheWholeName(Foreign):
    async def unfinished(self, agent=None):
        return [one for one in await super().unfinished() if agent in {None, one.agent}]


class FindsTheOldest(Foreign):
    async def find_label(self, label):
        found = [one for one in self.records.values() if one.label == label]
        return min(found, key=lambda one: one.began, default=None)


class WritesByHalves(Foreign):
    async def begin(self, record):
        begun = await super().begin(record)
        self.records[record.message_id] = replace(begun, task_id="half")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.records[record.message_id] = begun
        return begun


class StaysInItsLoop(Foreign):
    loop = None

    async def find(self, message_id):
        type(self).loop = type(self).loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("another loop")
        return await super().find(message_id)


class ClosesOnce(Foreign):
    async def close(self):
        assert not self.is_closed, "closed twice"
        await super().close()


class LeasesNothing(Foreign):
    lease = 0


BREACHES = [
    (ForgetsTheDigest, "begin returns every field of a record"),
    (BeginsSilently, "begin returns every field of a record"),
    (BeginsTwice, "begin refuses a message that is recorded already"),
    (KnowsNoLabels, "begin refuses a label that is recorded already, for any name of the agent"),
    (
        KnowsLabelsByAgent,
        "begin refuses a label that is recorded already, for any name of the agent",
    ),
    (GivesNoReason, "with reason='exists' and message_id='begin-1'"),
    (RaisesWhatItLikes, "claim refuses a call that is not recorded, by a JournalError"),
    (LooksBeforeItLeaps, "if two begin the same call at once, one is refused"),
    (ClaimsSlowly, "if two claim a call at once, one is refused"),
    (UpdatesWhatIsOver, "update does not change a record with an outcome"),
    (UpdatesAnyGeneration, "whether there is a record of that generation"),
    (ForgetsWhatIsNone, "a field that is None in an update is unchanged"),
    (RenewsAll, "renew returns the ids of open records"),
    (RenewsOnlyInWord, "and renews these only"),
    (ClaimsWhatIsHeld, "claim refuses a call whose lease lasts"),
    (NeverReleases, "an update can release a call"),
    (HoldsForEver, "claim takes a call whose lease has ended"),
    (ReleasesAfterTheFirstLease, "claim refuses a call whose lease was renewed"),
    (HoldsFinishedCalls, "lease_left is 0 for a call with an outcome"),
    (KeepsTheGeneration, "claim stores the record that it returns"),
    (
        ListsNewestFirst,
        "unfinished returns the calls without an outcome or with an unknown one, oldest",
    ),
    (ListsAllAgents, "unfinished returns only the calls of an agent"),
    (ListsByTheWholeName, "if one is named, with any of its replicas"),
    (FindsTheOldest, "find_label returns the newest record"),
    (WritesByHalves, "does all of its work, or nothing"),
    (ClosesOnce, "closed twice"),
    (BeginsAgainWithTheSameGeneration, "that replaces another one a greater generation"),
    (NeverSendsAgain, "raised where nothing was wrong, in begin-again"),
    (StaysInItsLoop, "in loops: RuntimeError\\('another loop'\\)"),
    (LeasesNothing, "lease is a positive number of seconds"),
]


@pytest.mark.parametrize(("kind", "rule"), BREACHES, ids=[kind.__name__ for kind, _ in BREACHES])
async def test_a_broken_rule_is_named(kind, rule):
    records = {}

    with pytest.raises(AssertionError, match=rule):
        await check_journal(lambda: kind(records))


async def test_a_journal_of_which_two_do_not_share_the_records_is_none():
    with pytest.raises(AssertionError, match="begin stores every field of a record"):
        await check_journal(Foreign)
