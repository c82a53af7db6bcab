"""Knowledge about the service for schemathesis: keys of each kind, and requests that share a rate limit.

Each request has a key and an address of its own turn, so that the limits of the service (60 a minute and the like) are not
what is tested. Environment: BASE of the service, KEYS and VIEWERS (keys with commas between), LAST_KEY (the highest id of
those), ACCOUNT and GUEST (names of accounts with the passwords of the document's examples), RECEIVER (url that takes what
webhooks send), COUNTS (file for the number of answers by operation and status).
"""

import atexit
import collections
import itertools
import json
import os

import requests
import schemathesis

# A file goes as it is.
schemathesis.serializer.alias("video/mp4", "application/octet-stream")
schemathesis.serializer.alias("application/sdp", "text/plain")

BASE = os.environ["BASE"]
# The password in the examples of the document; a test may change it.
passwords = collections.defaultdict(lambda: "correct horse battery")
# These operations need the session of a login instead of a key.
WITH_SESSION = {"logOut": os.environ["ACCOUNT"], "changePassword": os.environ["GUEST"]}
ENDS_SESSIONS = {*WITH_SESSION, "endLoginSession"}
ENDS_KEYS = {"rotateKey", "revokeKey"}
WITH_PUBLIC_KEY = {"getStreamStatus"}
# Operations whose new resource belongs to another collection than their path, and its field in their answer.
DELIVERIES = "/api/webhooks/{id}/deliveries"
MAKES = {"rotateKey": ("/api/keys", "id"), "testWebhook": (DELIVERIES, "deliveryId")}

keys = itertools.cycle(os.environ["KEYS"].split(","))
viewers = itertools.cycle(os.environ["VIEWERS"].split(","))
networks = itertools.count()
sessions = {}
made = collections.defaultdict(list)
turns = collections.Counter()
counts = collections.defaultdict(collections.Counter)


def client():
    """Headers that give a request a client network of its own."""
    number = next(networks)
    return {"X-Forwarded-For": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"}


def operation_of(case):
    return case.operation.definition.raw.get("operationId", case.operation.label)


def session(name):
    """The token of a session of that account."""
    if name not in sessions:
        body = {"name": name, "password": passwords[name]}
        answer = requests.post(f"{BASE}/api/auth/login", json=body, headers=client(), timeout=30)
        if answer.status_code != 200:
            raise RuntimeError(f"{name} cannot log in: {answer.status_code} {answer.text}")
        sessions[name] = answer.json()["token"]
    return sessions[name]


@schemathesis.auth(refresh_interval=None)
class Keys:
    def get(self, case, context):
        operation = operation_of(case)
        if operation in WITH_SESSION:
            return session(WITH_SESSION[operation])
        return next(viewers if operation in WITH_PUBLIC_KEY else keys)

    def set(self, case, data, context):
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.hook
def before_call(context, case, kwargs):
    case.headers.update(client())
    if case.meta is not None and case.meta.phase.name.value == "stateful":
        # The answer to a repeated request names the resource of the first request, which may have been deleted since.
        case.headers.pop("Idempotency-Key", None)
    name_what_exists(case)
    stay_on_the_machine(case)
    keep_the_keys(case)


def is_right(case):
    """Whether the request is generated as a valid one."""
    return case.meta is not None and case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE


def stay_on_the_machine(case):
    """Webhooks with a usable url lead to the receiver, and so does every second one with any text as url."""
    if operation_of(case) != "createWebhook" or not isinstance(case.body, dict):
        return
    url = case.body.get("url")
    turns["url"] += is_right(case)
    if isinstance(url, str) and (url.lower().startswith("http") or is_right(case) and turns["url"] % 2):
        case.body["url"] = os.environ["RECEIVER"]


def keep_the_keys(case):
    """The keys of the requests themselves are never revoked or replaced."""
    key = (case.path_parameters or {}).get("id")
    if operation_of(case) in ENDS_KEYS and isinstance(key, int) and 0 < key <= int(os.environ["LAST_KEY"]):
        case.path_parameters["id"] = -key


def name_what_exists(case):
    """Every second valid request names an existing resource, because random ids would name none.

    Requests that follow from each other, and those that are wrong on purpose, stay as they are.
    """
    template = case.operation.path
    if not is_right(case) or case.meta.phase.name.value == "stateful":
        return
    turns[template] += 1
    if turns[template] % 2:
        return
    for collection, make in MAKERS.items():
        if template.startswith(collection + "/{") and not made[collection]:
            made[collection].append(make())
    for collection in sorted(made, key=len, reverse=True):
        rest = template.removeprefix(collection + "/{")
        if rest != template and made[collection]:
            parameters, last = made[collection][-1]
            case.path_parameters.update({**parameters, rest.split("}")[0]: last})
            return


def post(path, body):
    headers = {**client(), "Authorization": f"Bearer {next(keys)}"}
    return requests.post(BASE + path, json=body, headers=headers, timeout=30).json()


def make_delivery():
    """A webhook and one of its deliveries, because the webhooks of other requests are deleted soon."""
    webhook = post("/api/webhooks", {"url": os.environ["RECEIVER"], "events": ["test.ping"]})["id"]
    return {"id": webhook}, post(f"/api/webhooks/{webhook}/test", {})["deliveryId"]


def make_destination():
    """A stream and one of its destinations, for the same reason."""
    stream = post("/api/streams", {"label": "with a destination"})["id"]
    return {"id": stream}, post(f"/api/streams/{stream}/destinations", {"type": "self-hosted", "config": {}})["id"]


# What makes a resource, with the parameters of its path, for operations that find none.
MAKERS = {
    DELIVERIES: make_delivery,
    "/api/streams/{id}/destinations": make_destination,
    "/api/destinations": lambda: ({}, make_destination()[1]),
}


def forget(template, gone):
    """Forgets the resource of a path, with everything below it."""
    kind = template.rpartition("/{")[0].rpartition("/")[2]
    for collection, entries in made.items():
        is_kind, is_below = collection.endswith("/" + kind), f"/{kind}/{{" in collection
        entries[:] = [
            (above, last)
            for above, last in entries
            if not (is_kind and str(last) == gone or is_below and gone in map(str, above.values()))
        ]


def remember(case, response):
    """Remembers the resource of a POST for other requests, until it is deleted or replaced."""
    if response.status_code != 200:
        return
    operation, parameters = operation_of(case), dict(case.path_parameters or {})
    if parameters and (case.method == "DELETE" or operation == "rotateKey"):
        forget(case.operation.path, str(list(parameters.values())[-1]))
    collection, name = MAKES.get(operation, (case.operation.path, "id"))
    body = response.json() if case.method == "POST" else None
    if isinstance(body, dict) and isinstance(body.get(name), int):
        made[collection].append((parameters, body[name]))


@schemathesis.hook
def after_call(context, case, response):
    operation = operation_of(case)
    # Other methods are tried too; their answers are none of the operation.
    if case.method.upper() == case.operation.method.upper():
        counts[operation][str(response.status_code)] += 1
    remember(case, response)
    if response.status_code != 200 or operation not in ENDS_SESSIONS:
        return
    sessions.clear()
    if operation == "changePassword":
        passwords[WITH_SESSION[operation]] = case.body["newPassword"]


@atexit.register
def report():
    with open(os.environ["COUNTS"], "w", encoding="utf-8") as file:
        json.dump({name: dict(sorted(statuses.items())) for name, statuses in sorted(counts.items())}, file)
