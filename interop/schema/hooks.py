"""What schemathesis needs to know about the server.

A long wait is no fault, but takes as long. A stream of events is text to OpenAPI: what the text
must be is checked here.
"""

import json
import re

import jsonschema_rs
import schemathesis

LONGEST_WAIT_MS = 20


@schemathesis.hook
def map_body(context, body):
    """Shortens a wait, so that a run does not stand behind locks that nobody releases."""
    if isinstance(body, dict):
        wait = body.get("wait_ms")
        if isinstance(wait, (int, float)) and wait > LONGEST_WAIT_MS:
            return {**body, "wait_ms": LONGEST_WAIT_MS}
    return body


@schemathesis.check
def event_stream_is_well_formed(ctx, response, case):
    """Checks a whole stream of events, from its first byte to its end."""
    kind = (response.headers.get("content-type") or [""])[0]
    if not kind.startswith("text/event-stream"):
        return
    text = response.content.decode("utf-8")
    assert text.endswith("\n\n"), f"the stream ends within an event: {text[-200:]!r}"
    described = re.findall(r"`(\w+)`", case.operation.definition.raw["description"])
    for block in text.split("\n\n"):
        fields = [line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")]
        event = dict(field for field in fields if field != [""])
        if event:
            check_event(event, described, case.operation.schema.raw_schema)


def check_event(event, described, document):
    """Checks one event, and that the description names it."""
    word, data = event["event"], json.loads(event["data"])
    assert word in described, f"the description does not name {word}: {event}"
    if word == "gap":
        assert data == {}, event
    elif word == "state":
        schema = {"$ref": "#/components/schemas/LockBody", "components": document["components"]}
        jsonschema_rs.validate(schema, data)
    else:
        assert re.fullmatch(r"\S+-\d+", event["id"]), event
        assert isinstance(data["name"], str) and isinstance(data["at_ms"], int), event
