"""Verifies webhook requests with the official library of Standard Webhooks: `python verify.py FILE`

FILE holds {"secret", "requests": [{"headers", "body"}]}. Prints one JSON line for each request; the exit code is 1 when one of
them was refused, 2 without a file.
"""

import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError


def verdict(webhook: Webhook, request: dict) -> dict:
    """The event that the library returned, or its reason for refusing."""
    try:
        return {"ok": True, "event": webhook.verify(request["body"], request["headers"])}
    except WebhookVerificationError as error:
        return {"ok": False, "error": str(error)}


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python verify.py FILE", file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    webhook = Webhook(asked["secret"])
    verdicts = [verdict(webhook, request) for request in asked["requests"]]
    for line in verdicts:
        print(json.dumps(line))
    return int(not all(line["ok"] for line in verdicts))


sys.exit(main())
