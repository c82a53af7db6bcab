"""What schemathesis must know of the service: keys of each kind, and whose requests are counted together.

Each request has a key and an address of its own turn, so that the limits of the service (60 a minute and the like) are not
what is tested. Environment: BASE of the service, KEYS and VIEWERS (keys with commas between), ACCOUNT and GUEST (names of
accounts with the passwords of the document's examples), COUNTS (file for the number of answers by operation and status).
"""

import atexit
import collections
import itertools
import json
import os

import requests
import schemathesis

BASE = os.environ["BASE"]
# As the examples of the document have it; a test may change it.
passwords = collections.defaultdict(lambda: "correct horse battery")
# These take a session of somebody who logged in, and no key.
WITH_SESSION = {"logOut": os.environ["ACCOUNT"], "changePassword": os.environ["GUEST"]}
ENDS_SESSIONS = {*WITH_SESSION, "endLoginSession"}
WITH_PUBLIC_KEY = {"getStreamStatus"}

keys = itertools.cycle(os.environ["KEYS"].split(","))
viewers = itertools.cycle(os.environ["VIEWERS"].split(","))
networks = itertools.count()
sessions = {}
made = collections.defaultdict(list)
turns = collections.Counter()
counts = collections.defaultdict(collections.Counter)


def client():
    """Headers that make a request come from a network of its own."""
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
        # The answer to a repeated request names what was made by the first, and may be deleted since.
        case.headers.pop("Idempotency-Key", None)
    name_what_exists(case)


def name_what_exists(case):
    """Every second request that is right names something that was made before, where its numbers would name nothing.

    Requests that follow from each other, and those that are wrong on purpose, stay as they are.
    """
    meta, template = case.meta, case.operation.path
    if meta is None or meta.generation.mode != schemathesis.GenerationMode.POSITIVE or meta.phase.name.value == "stateful":
        return
    turns[template] += 1
    if turns[template] % 2:
        return
    for collection in sorted(made, key=len, reverse=True):
        rest = template.removeprefix(collection + "/{")
        if rest != template and made[collection]:
            parameters, last = made[collection][-1]
            case.path_parameters.update({**parameters, rest.split("}")[0]: last})
            return


def remember(case, response):
    """What a POST to a collection made is named by others, until it is deleted."""
    body = response.json() if response.status_code == 200 else None
    if case.method == "POST" and isinstance(body, dict) and isinstance(body.get("id"), int):
        made[case.operation.path].append((dict(case.path_parameters or {}), body["id"]))
    if case.method == "DELETE" and response.status_code == 200:
        gone = list((case.path_parameters or {}).values())[-1:]
        for entries in made.values():
            entries[:] = [entry for entry in entries if str(entry[1]) not in map(str, gone)]


@schemathesis.hook
def after_call(context, case, response):
    operation = operation_of(case)
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
