"""The life of a stream, with the client that openapi-generator generates from the committed document.

Environment: BASE and KEY of the service, INGEST without stream key, RTMP of a server to forward to, SOURCE to publish.
Prints one JSON line at the end; fails with an exception.
"""

import json
import os
import subprocess
import time
import urllib.request

import satcast_client as satcast


def client(key):
    """A client with this key."""
    configuration = satcast.Configuration(host=os.environ["BASE"], access_token=key)
    return satcast.ApiClient(configuration)


def until(what, ask):
    """Repeats a request every half second, for up to half a minute, until it returns a value."""
    for _ in range(60):
        answer = ask()
        if answer:
            return answer
        time.sleep(0.5)
    raise TimeoutError(f"no {what} after half a minute")


def main():
    api = client(os.environ["KEY"])
    streams, destinations = satcast.StreamsApi(api), satcast.DestinationsApi(api)
    created = streams.create_stream(satcast.NewStream(label="python")).actual_instance
    assert isinstance(created, satcast.StreamCreated), created

    hosted = destinations.add_destination(
        created.id,
        satcast.NewDestination(
            satcast.NewDestinationSelfHosted(
                type="self-hosted", config=satcast.DestinationConfigSelfHosted(dvr_seconds=60)
            )
        ),
    )
    target = satcast.DestinationConfigRtmp(url=os.environ["RTMP"], key="python")
    forwarded = satcast.NewDestinationRtmp(type="rtmp", config=target)
    destinations.add_destination(created.id, satcast.NewDestination(forwarded))
    try:
        target = satcast.DestinationConfigRtmp(url="http://example.com/")
        forwarded = satcast.NewDestinationRtmp(type="rtmp", config=target)
        destinations.add_destination(created.id, satcast.NewDestination(forwarded))
        raise AssertionError("an http address was taken")
    except satcast.exceptions.UnprocessableEntityException as refused:
        assert refused.data.code == "config_refused", refused

    streams.set_limits(created.id, satcast.LimitsChange(max_sats=500))
    keys = satcast.KeysApi(api)
    first = keys.create_key(satcast.NewApiKey(type=satcast.KeyType.PUBLIC, destination_id=hosted.id))
    second = keys.rotate_key(first.id)
    try:
        satcast.PublicApi(client(first.key)).get_stream_status()
        raise AssertionError("a key that was replaced is served")
    except satcast.exceptions.UnauthorizedException as refused:
        assert refused.data.code == "invalid_key", refused
    public = satcast.PublicApi(client(second.key))
    offline = public.get_stream_status()
    assert offline.is_live is False and offline.hls_url is None, offline
    pricing = public.get_public_config().pricing

    # The webhook gets no request, because it is never tested.
    webhooks = satcast.WebhooksApi(api)
    wanted = satcast.NewWebhook(
        url="https://hooks.example.com/python",
        events=[satcast.WebhookEvent.TEST_DOT_PING],
        secret="auto",
        stream_key_id=created.id,
    )
    webhook = webhooks.create_webhook(wanted)
    assert webhook.secret.startswith("whsec_"), "no secret"
    listed = webhooks.list_webhooks()
    assert [(one.id, one.has_secret, one.last_delivery) for one in listed] == [(webhook.id, True, None)], listed

    url = f"{os.environ['INGEST']}/{created.stream_key}"
    encoder = subprocess.Popen(
        ["ffmpeg", "-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i", os.environ["SOURCE"]]
        + ["-c", "copy", "-f", "flv", url]
    )
    try:

        def playable():
            status = public.get_stream_status()
            return status if status.hls_ready else None

        status = until("playable stream", playable)
        with urllib.request.urlopen(status.hls_url) as playlist:
            assert playlist.read(7) == b"#EXTM3U"

        def all_live():
            stream = streams.get_stream(created.id)
            return stream if all(one.state == "live" for one in stream.destinations) else None

        live = until("destinations that are live", all_live)
        assert live.status == "active" and live.limits.max_sats == 500, live

        cost = public.get_active_cost()
        own = [stream for stream in cost.streams if stream.stream_key_id == created.id]
        assert cost.has_active_stream and own[0].rate_per_minute == pricing.cost_per_platform, cost

        stopped = streams.stop_stream(created.id)

        def ended():
            stream = streams.get_stream(created.id)
            return stream.status == "idle" and stream.last_end_reason == "stopped"

        until("end of the stream", ended)
        analytics = satcast.AnalyticsApi(api)
        history = until("history", lambda: analytics.get_stream_history(stream_key_id=created.id, limit=10))
        streams.delete_stream(created.id)
        try:
            streams.get_stream(created.id)
            gone = None
        except satcast.exceptions.NotFoundException as missing:
            gone = missing.data.code
        webhooks.delete_webhook(webhook.id)
        entries = satcast.AccountsApi(api).get_audit_log(limit=3)
        assert entries[0].actor.type == "key" and entries[0].target.id == webhook.id, entries
        since = [one.live_since or 0 for one in live.destinations]
        print(
            json.dumps(
                {
                    "since": since,
                    "stopped": stopped.message,
                    "history": sorted(entry.platform for entry in history),
                    "gone": gone,
                    "done": [entry.action for entry in entries],
                }
            )
        )
    finally:
        encoder.kill()
        encoder.wait()


main()
