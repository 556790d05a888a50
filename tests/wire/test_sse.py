"""The parser of event streams: the standard's rules, for any chunks."""

import itertools
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from tests.kit.effort import case
from tests.kit.strategies import given

from holdfast._wire.sse import EventStreamParser, ServerSentEvent
from holdfast.errors import LimitExceededError
from holdfast.policies import Limits

MARK = b"\xef\xbb\xbf"


def parser(**limits):
    return EventStreamParser(Limits(**limits))


def parse(*chunks):
    reading = parser()
    return [event for chunk in chunks for event in reading.feed(chunk)]


def data(*chunks):
    return [event.data for event in parse(*chunks)]


def message(text, event="message", last_id=""):
    return ServerSentEvent(text, event, last_id)


def cut(stream, offsets):
    """Split the stream at these offsets."""
    bounds = [0, *sorted(offsets), len(stream)]
    return [stream[a:b] for a, b in pairwise(bounds)]


def pieces(stream, size):
    return [stream[start : start + size] for start in range(0, len(stream), size)]


# ── The standard ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"data: one\n\n", [message(b"one")]),
        (b"data: one\n\ndata: two\n\n", [message(b"one"), message(b"two")]),
        # the value
        (b"data:one\n\n", [message(b"one")]),
        (b"data:  one \n\n", [message(b" one ")]),
        (b"data:\tone\n\n", [message(b"\tone")]),
        (b"data::one: two\n\n", [message(b":one: two")]),
        (b"data:\n\n", [message(b"")]),
        (b"data: \n\n", [message(b"")]),
        (b"data\n\n", [message(b"")]),
        # many lines
        (b"data: {\ndata:  1\ndata: }\n\n", [message(b"{\n 1\n}")]),
        (b"data\ndata\n\n", [message(b"\n")]),
        (b"data: one\ndata\n\n", [message(b"one\n")]),
        # fields that are not of the standard, or not quite
        (b" data: one\n\n", []),
        (b"data : one\n\n", []),
        (b"Data: one\n\n", []),
        (b"DATA: one\n\n", []),
        (b"datum: one\ndata: two\n\n", [message(b"two")]),
        (b"data2: one\n\n", []),
        (b"nonsense\n\ndata: one\n\n", [message(b"one")]),
        (b'{"error": "not a stream"}\n\n', []),
        # comments
        (b": ping\n\n", []),
        (b":\n:data: one\ndata: two\n: ping\ndata: three\n\n", [message(b"two\nthree")]),
        # types
        (b"event: error\ndata: one\n\n", [message(b"one", "error")]),
        (b"data: one\nevent: error\n\n", [message(b"one", "error")]),
        (b"event: a\nevent: b\ndata: one\n\n", [message(b"one", "b")]),
        (b"event: a\nevent\ndata: one\n\n", [message(b"one")]),
        (b"event: a\n\ndata: one\n\n", [message(b"one")]),
        (b"event: a\ndata: 1\n\ndata: 2\n\n", [message(b"1", "a"), message(b"2")]),
        # ids
        (
            b"id: 1\ndata: a\n\ndata: b\n\n",
            [message(b"a", last_id="1"), message(b"b", last_id="1")],
        ),
        (b"id: 1\n\ndata: a\n\n", [message(b"a", last_id="1")]),
        (b"id: 1\ndata: a\nid: 2\n\n", [message(b"a", last_id="2")]),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [message(b"a", last_id="1"), message(b"b")]),
        (b"id: 1\n\nid: 2\0\ndata: a\n\n", [message(b"a", last_id="1")]),
        # what is not ASCII
        ("id: ü\nevent: é\ndata: 😀\n\n".encode(), [message("😀".encode(), "é", "ü")]),
        (b"id: \xff\nevent: \xe2\x82\ndata: \xff\n\n", [message(b"\xff", "\ufffd", "\ufffd")]),
        # an event that does not end
        (b"data: one", []),
        (b"data: one\n", []),
        (b"data: one\n\ndata: two\n", [message(b"one")]),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_stream_is_parsed_according_to_the_standard(stream, events, end):
    stream = stream.replace(b"\n", end)
    assert parse(stream) == parse(MARK + stream) == events
    assert parse(*pieces(stream, 1)) == parse(*pieces(MARK + stream, 1)) == events


@pytest.mark.parametrize(
    "stream",
    [
        b"data: a\r\ndata: b\n\r\n",
        b"data: a\ndata: b\r\n\r",
        b"data: a\rdata: b\r\r\n",
        b"data: a\r\ndata: b\r\r",
        b"data: a\ndata: b\n\r",
    ],
)
def test_line_ends_may_be_mixed(stream):
    assert data(stream, b"data: c\n\n") == [b"a\nb", b"c"]


@pytest.mark.parametrize("character", ["\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\0"])
def test_no_other_character_ends_a_line(character):
    text = f"one{character}data: two".encode()
    assert data(b"data: " + text + b"\n\n") == data(b"id:1\ndata: " + text + b"\n\n") == [text]


def test_only_the_first_byte_order_mark_is_removed():
    assert data(MARK + MARK + b"data: one\n\ndata: two\n\n") == [b"two"]
    assert data(b"data: one\n\n" + MARK + b"data: two\n\n") == [b"one"]
    assert data(MARK[:2] + b"data: one\n\ndata: two\n\n") == [b"two"]
    assert data(MARK[:2], b"\n\n", b"data: " + MARK + b"\n\n") == [MARK]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r", b"\r\r", b"\n\r", b"\r\n\n"])
def test_an_event_is_emitted_at_the_end_of_its_blank_line(end):
    reading = parser()
    assert reading.feed(b"data: one" + end[:-1]) == []
    assert reading.feed(end[-1:]) == [message(b"one")]


def test_a_line_feed_may_follow_its_carriage_return_in_the_next_chunk():
    assert data(b"data: a\r", b"", b"\ndata: b\r", b"\n\r", b"\n", b"data: c\n\n") == [
        b"a\nb",
        b"c",
    ]
    assert data(b"data: a\r", b"\r\n", b"\ndata: b\n\n") == [b"a", b"b"]


def test_a_chunk_may_begin_within_a_line_that_resembles_a_field():
    assert data(b": ", b"data: one\n\n", b"x", b"data: two\n\n", b"data:", b"data: 3\n\n") == [
        b"data: 3"
    ]


# ── Other results of the parser ──────────────────────────────────────────────────────────────


def test_the_last_event_id_is_that_of_a_complete_event():
    reading = parser()
    assert reading.last_event_id == ""
    reading.feed(b"id: 1\n\nid: 2\ndata: cut\n")
    assert reading.last_event_id == "1"
    assert reading.feed(b"\n") == [message(b"cut", last_id="2")]
    assert reading.last_event_id == "2"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1500", 1.5),
        (b"0", 0),
        (b"00020", 0.02),
        (b"999999999", 999_999.999),
        (b"1000000001", 1_000_000),
        (b"0" * 100_000 + b"1", 0.001),
        (b"9" * 100_000, 1_000_000),
        (b"", None),
        (b"-1", None),
        (b"+1", None),
        (b"1.5", None),
        (b"1_000", None),
        (b" 1", None),
        (b"1 ", None),
        (b"0x10", None),
        ("\u0661".encode(), None),
    ],
)
def test_the_reconnection_time_is_a_number_in_ascii(value, seconds):
    reading = parser()
    assert reading.reconnection_time is None
    assert reading.feed(b"retry: " + value + b"\n") == []
    assert reading.reconnection_time == seconds


def test_the_last_reconnection_time_is_used():
    reading = parser()
    reading.feed(b"retry: 1000\ndata: a\n\nretry:2000\r\nretry: soon\r\n\r\n")
    assert reading.reconnection_time == 2


@pytest.mark.parametrize(
    ("stream", "is_cut"),
    [
        (b"", False),
        (MARK[:1], False),
        (MARK, False),
        (b"data: one\n\n", False),
        (b"data: one\r\n\r", False),
        (b": pi", False),
        (b"data: one\n\n: ping\n", False),
        (b"data: one\n\n: ping\n\n\n", False),
        (b"d", True),
        (b"data: one", True),
        (b"data: one\n", True),
        (b"data: one\n: pi", True),
        (b"data: one\n: ping\n", True),
        (b"event: error\n", True),
        (b"id: 1\n", True),
        (b"data: one\n\ndata: two\n", True),
    ],
)
def test_an_incomplete_event_is_detected(stream, is_cut):
    for chunks in ([stream], pieces(stream, 1)):
        reading = parser()
        for chunk in chunks:
            reading.feed(chunk)
        assert reading.is_cut is is_cut


# ── Any bytes, in any chunks ─────────────────────────────────────────────────────────────────


def lines_of(text):
    lines, line, index = [], "", 0
    while index < len(text):
        if text[index] in "\r\n":
            index += text[index : index + 2] == "\r\n"
            lines.append(line)
            line = ""
        else:
            line += text[index]
        index += 1
    return lines


def by_the_standard(stream):
    """Parse according to the steps of the standard, one character at a time."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    events, data, event, last_id, retry = [], "", "", "", None
    for line in lines_of(text):
        if line == "":
            if data != "":
                events.append((data.removesuffix("\n"), event or "message", last_id))
            data = event = ""
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "data":
                data += value + "\n"
            elif field == "id" and "\0" not in value:
                last_id = value
            elif field == "retry" and value and set(value) <= set("0123456789"):
                retry = int(value) / 1000
    return events, retry


def as_text(event):
    return event.data.decode("utf-8", "replace"), event.event, event.id


WORDS = [
    *(
        b"data: ",
        b"data:",
        b"data",
        b"event: ",
        b"event:a",
        b"id: ",
        b"id:1",
        b"retry: ",
        b"retry:",
    ),
    *(b"\n", b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n", b"\r\n\r\n", b"\r\r"),
    *(b":", b": ping\n", b" ", b"x", b"7", b"\0", b'{"a": 1}', MARK, b"\xe2\x80\xa8", b"\xc2\x85"),
    *("😀".encode(), b"\xff", b"\xe2", b"\x80", b"\xed\xa0\x80", b"\v", b"\x0c", b"datax"),
]
STREAMS = st.lists(st.sampled_from(WORDS), max_size=40).map(b"".join)
LIKELY = st.lists(
    st.sampled_from(
        [b"data: {}", b"data:x", b"event: e", b"id: 1", b": c", b"", "data: é".encode()]
    ),
    max_size=20,
).flatmap(
    lambda lines: st.sampled_from([b"\n", b"\r\n", b"\r"]).map(lambda end: end.join([*lines, b""]))
)
CUTS = st.sets(st.integers(0, 120))


@given(
    marked=st.booleans(),
    stream=STREAMS | LIKELY | st.binary(max_size=60),
    offsets=CUTS,
    max_examples=500,
)
def test_any_bytes_in_any_chunks_match_a_reference_parser(marked, stream, offsets):
    stream = MARK + stream if marked else stream
    reading = parser()
    chunks = cut(stream, {offset for offset in offsets if offset < len(stream)})
    events = [event for chunk in chunks for event in reading.feed(chunk)]

    expected, retry = by_the_standard(stream)
    assert list(map(as_text, events)) == expected
    assert reading.reconnection_time == retry
    whole_parser = parser()
    assert whole_parser.feed(stream) == events
    assert whole_parser.is_cut == reading.is_cut
    assert whole_parser.last_event_id == reading.last_event_id


@given(
    stream=STREAMS | LIKELY | st.binary(max_size=60),
    end=st.sampled_from([b"\n", b"\r\n"]),
    max_examples=200,
)
def test_a_chunk_with_many_events_equals_many_small_chunks(stream, end):
    many = (b"data: x" + end + end) * 600
    stream = many + stream + many

    assert parse(stream) == parse(*pieces(stream, 1000))


# ── Limits ───────────────────────────────────────────────────────────────────────────────────


def outcome(chunks, bound):
    """Return the events of a stream, and whether it was refused after them."""
    reading, events = parser(event=bound), []
    try:
        for chunk in chunks:
            events += reading.feed(chunk)
        reading.feed(b"")
    except LimitExceededError:
        return events, True
    return events, False


@given(stream=STREAMS | LIKELY, offsets=CUTS, bound=st.integers(1, 40), max_examples=200)
def test_refusals_do_not_depend_on_the_chunks(stream, offsets, bound):
    chunks = cut(stream, {offset for offset in offsets if offset < len(stream)})
    events, is_refused = outcome(chunks, bound)

    assert (events, is_refused) == outcome([stream], bound)
    assert events == parse(stream)[: len(events)]
    assert is_refused or events == parse(stream)
    assert not outcome(chunks, len(stream) + 1)[1]


@pytest.mark.rule("P25")
@pytest.mark.parametrize(
    "event",
    [
        b"data: 3456789",
        b"data: 34567890",
        b"data:1\ndata:2",
        b"data:1\nx\n:\ny",
        b": 345678901",
        b"event: 8\nid:",
        b"x\nx\nx\nx\nx\nx\nx",
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_an_event_above_the_limit_is_refused(event, size):
    lines = [line for line in event.split(b"\n") if not line.startswith(b":")]
    length = sum(map(len, lines)) or len(event)
    stream = b"data:1\n\n" + event + b"\n\n"
    assert outcome(pieces(stream, size), length)[1] is False
    events, is_refused = outcome(pieces(stream, size), length - 1)
    assert (events, is_refused) == ([message(b"1")], True)


def test_the_error_names_the_limit():
    reading = parser(event=10)
    for chunk in (b"data: 56789", b"\n\ndata: 5\n\n", b""):  # once refused, refused for ever
        with pytest.raises(LimitExceededError, match="larger than 10 bytes") as caught:
            reading.feed(chunk)
        assert (caught.value.which, caught.value.bound) == ("event", 10)
        assert "Limits(event=…)" in str(caught.value)


def test_events_before_one_that_is_too_large_are_delivered():
    reading = parser(event=10)
    assert reading.feed(b"data: one\n\ndata: 56789\n\ndata: two\n\n") == [message(b"one")]
    assert reading.is_cut
    for chunk in (b"data: two\n\n", b""):
        with pytest.raises(LimitExceededError):
            reading.feed(chunk)


@pytest.mark.rule("P25")
def test_an_endless_stream_of_small_events_is_within_the_limit():
    reading = parser(event=100)
    for _ in range(1000):
        assert reading.feed(b": ping\n: ping\n") == []
        assert reading.feed(b"id: 1\nretry: 1\n\n") == []
        assert reading.feed(b"data: one\n: ping\n\n") == [message(b"one", last_id="1")]


BOUND = 2**14


@pytest.mark.rule("P25")
@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 2 * BOUND,
        b"data: " + b"x" * (BOUND - 6) + b"\n\n",
        b"data:" + b"x" * (BOUND // 2 - 6) + b"\ndata:" + b"x" * (BOUND // 2 - 6) + b"\n\n",
        b"data\n" * BOUND,
        b"data:x\n" * BOUND,
        b"data:xy\n" * BOUND,
        b"x\n" * BOUND,
        b"event: " + b"x" * (BOUND - 11) + "😀\n\n".encode(),
        2 * (b"id: " + b"x" * (BOUND - 8) + "😀\n\n".encode()),
        2 * (b"id:" + b"x" * (BOUND // 2 - 16) + "😀\n\ndata:\nid: x".encode()),
        b"x" * 2 * BOUND,
        b": " + b"x" * 2 * BOUND,
        b": ping\n" * BOUND,
        b"\n" * 2 * BOUND,
        b"\r" * 2 * BOUND,
        MARK * BOUND,
    ],
)
def test_a_hostile_stream_uses_bounded_memory(stream):
    reading = parser(event=BOUND)
    view = memoryview(stream)
    tracemalloc.start()
    try:
        for start in range(0, len(stream), 4096):
            reading.feed(bytes(view[start : start + 4096]))
    except LimitExceededError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 12 * BOUND


@pytest.mark.parametrize(
    "event", [b"data\n\n", b"data:\r\n\r\n", b"data:xy\n\n", b"event:ab\ndata\n\n"]
)
def test_the_events_of_a_chunk_use_bounded_memory(event):
    chunk = event * (BOUND // len(event))
    reading = parser()
    tracemalloc.start()
    try:
        events = reading.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(events) == BOUND // len(event)
    assert peak < 16 * BOUND


# ── Cost ─────────────────────────────────────────────────────────────────────────────────────


class Counted(bytes):
    """Bytes that count how many of them are searched or copied."""

    work = 0

    def find(self, target, start=0, end=None):
        index = super().find(target, start)
        Counted.work += (index if index >= 0 else len(self)) - start + 1
        return index

    def __getitem__(self, key):
        part = super().__getitem__(key)
        Counted.work += len(part) if isinstance(key, slice) else 1
        return part

    def __radd__(self, prefix):
        return Counted(prefix + bytes(self))

    def removeprefix(self, prefix):
        return Counted(super().removeprefix(prefix))


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 0123456789\n\n",
        b"data: 0123456789\r\n\r\n",
        b"data: 0123456789\r\r",
        b"data: 0123456789\ndata: 0123456789\n\n",
        b"id: 1\r\ndata: 0123456789\r\n\r\n",
        b"data: 0123456789\n\ndata: 0123456789\r\n\r\n",
        b"data: 0123456789",
        b": ping\n\n",
        b"\n",
        b"\r",
        b"x",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000, 2**16])
def test_no_byte_is_scanned_repeatedly(stream, size):
    ends = [b"", b"\r\n\r\n", b"\n\n"]
    for first, last in itertools.product(ends, ends):
        with case((first, last)):
            all_bytes = first + stream * 300 + last
            reading = parser()
            Counted.work = 0
            for chunk in pieces(all_bytes, size):
                reading.feed(Counted(chunk))
            assert len(all_bytes) // 2 < Counted.work < 6 * len(all_bytes)


def test_an_incomplete_line_is_extended_in_place():
    reading = parser()
    reading.feed(b"data:")
    line = reading._line
    for chunk in pieces(b"x" * 1000, 1):
        reading.feed(chunk)
        assert reading._line is line
    assert reading.feed(b"\n\n") == [message(b"x" * 1000)]


@pytest.mark.parametrize("size", [1000, 2**16])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_large_event_may_arrive_in_small_chunks(size, end):
    text = bytes(range(32, 127)) * 100_000
    assert data(*pieces(b"data: " + text + 2 * end, size)) == [text]
