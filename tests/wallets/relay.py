"""A Nostr relay on 127.0.0.1 that keeps events in memory; ends with its process."""

import asyncio
import os

from nostr_sdk import LocalRelay, RelayBuilder


async def main():
    relay = LocalRelay(RelayBuilder().addr("127.0.0.1").port(int(os.environ["PORT"])))
    await relay.run()
    print("relay", await relay.url(), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
