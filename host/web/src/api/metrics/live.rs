//! Sessions, their destinations, and drivers. Destinations are labelled by their ids, for as long as their session lives.

use super::text::Text;
use crate::api::app::App;
use satcast_core::ids::UnixMillis;
use satcast_drivers::{State, Summary};
use satcast_live::{DestState, LiveDestination, SessionState};

const STATES: [DestState; 5] =
    [DestState::Connecting, DestState::Live, DestState::Retrying, DestState::Failed, DestState::Stopped];

pub(super) fn sessions(text: &mut Text, app: &App) {
    const NAME: &str = "satcast_sessions";
    text.family(NAME, "gauge", "Sessions by state");
    let states = app.live.session_states();
    for (name, state) in [
        ("live", SessionState::Live),
        ("reconnecting", SessionState::Reconnecting),
        ("stopping", SessionState::Stopping),
    ] {
        let count = states.iter().filter(|seen| **seen == state).count();
        text.sample(NAME, &[("state", name)], count as u64);
    }
    text.single(
        "satcast_received_bytes_total",
        "counter",
        "Bytes of media from all encoders",
        app.live.received_bytes(),
    );
}

/// Name, type, help and value of one metric of destinations.
type Figure = (&'static str, &'static str, &'static str, fn(&LiveDestination) -> u64);

const FIGURES: [Figure; 6] = [
    (
        "satcast_destination_attempts",
        "gauge",
        "Connection attempts since the destination was last live; 0 while it is live",
        |seen| u64::from(seen.shown.attempt),
    ),
    ("satcast_destination_sent_bytes_total", "counter", "Bytes sent in the running session", |seen| {
        seen.shown.bytes_sent
    }),
    ("satcast_destination_bits_per_second", "gauge", "Current bit rate", |seen| seen.shown.bitrate),
    (
        "satcast_destination_dropped_packets_total",
        "counter",
        "Packets dropped in the running session because the destination was too slow",
        |seen| seen.shown.dropped_packets,
    ),
    ("satcast_destination_queue_packets", "gauge", "Packets that wait, in memory and on disk", |seen| {
        seen.waiting.packets
    }),
    ("satcast_destination_queue_bytes", "gauge", "Bytes that wait, in memory and on disk", |seen| {
        seen.waiting.bytes
    }),
];

pub(super) fn destinations(text: &mut Text, all: &[LiveDestination]) {
    const COUNT: &str = "satcast_destinations";
    text.family(COUNT, "gauge", "Destinations of live sessions by state");
    for state in STATES {
        let count = all.iter().filter(|seen| seen.shown.state == state).count();
        text.sample(COUNT, &[("state", state.as_str())], count);
    }
    const STATE: &str = "satcast_destination_state";
    text.family(STATE, "gauge", "Always 1; the label is the state of a destination of a live session");
    for seen in all {
        let (stream, id) = (seen.stream.to_string(), seen.id.to_string());
        let labels = [
            ("stream", stream.as_str()),
            ("destination", &id),
            ("type", &seen.kind),
            ("state", seen.shown.state.as_str()),
        ];
        text.sample(STATE, &labels, 1);
    }
    for (name, kind, help, value) in FIGURES {
        text.family(name, kind, help);
        for seen in all {
            let (stream, id) = (seen.stream.to_string(), seen.id.to_string());
            let labels = [("stream", stream.as_str()), ("destination", &id), ("type", &seen.kind)];
            text.sample(name, &labels, value(seen));
        }
    }
    times(text, all);
    driver_counters(text, all);
}

/// Times of destinations that have them.
fn times(text: &mut Text, all: &[LiveDestination]) {
    type Time = fn(&LiveDestination) -> Option<UnixMillis>;
    let families: [(&str, &str, Time); 2] = [
        ("satcast_destination_state_since_seconds", "Unix time of the last change of state", |seen| {
            seen.shown.state_since
        }),
        (
            "satcast_destination_next_retry_seconds",
            "Unix time of the next attempt, if one is planned",
            |seen| seen.shown.next_retry_at,
        ),
    ];
    for (name, help, time) in families {
        text.family(name, "gauge", help);
        for seen in all {
            let (stream, id) = (seen.stream.to_string(), seen.id.to_string());
            let labels = [("stream", stream.as_str()), ("destination", &id), ("type", &seen.kind)];
            if let Some(at) = time(seen) {
                text.sample(name, &labels, u64::try_from(at.0 / 1_000).unwrap_or_default());
            }
        }
    }
}

pub(super) fn drivers(text: &mut Text, all: &[Summary]) {
    const STATE: &str = "satcast_driver_state";
    text.family(STATE, "gauge", "Always 1; the label is the state of the driver as in /api/drivers");
    for driver in all {
        text.sample(STATE, &[("driver", &driver.id), ("state", driver.state.as_str())], 1);
    }
    type Figure = (&'static str, &'static str, &'static str, fn(&Summary) -> u64);
    let figures: [Figure; 3] = [
        ("satcast_driver_loaded", "gauge", "1 if the driver serves destinations, otherwise 0", |driver| {
            u64::from(driver.state == State::Loaded)
        }),
        (
            "satcast_driver_crashes_total",
            "counter",
            "Crashes of the driver's process since it was loaded, or panics of a driver on threads",
            |driver| driver.crashes,
        ),
        (
            "satcast_driver_change_refused",
            "gauge",
            "1 if the driver runs on unchanged because its changed library or settings were refused",
            |driver| u64::from(driver.refused.is_some()),
        ),
    ];
    for (name, kind, help, value) in figures {
        text.family(name, kind, help);
        for driver in all {
            text.sample(name, &[("driver", &driver.id)], value(driver));
        }
    }
}

const DRIVER_TOTAL: &str = "satcast_destination_driver_total";

/// Counters of drivers; `drivers::Counters` bounds number and form of the names.
fn driver_counters(text: &mut Text, all: &[LiveDestination]) {
    text.family(
        DRIVER_TOTAL,
        "counter",
        "Counters of the driver in the running session; the label is the driver's name of the counter",
    );
    for seen in all {
        let (stream, id) = (seen.stream.to_string(), seen.id.to_string());
        own(text, [("stream", &stream), ("destination", &id), ("type", &seen.kind)], &seen.counters);
    }
}

/// Counters of one destination.
fn own(text: &mut Text, [stream, destination, kind]: [(&str, &str); 3], counters: &[(String, u64)]) {
    for (name, value) in counters {
        text.sample(DRIVER_TOTAL, &[stream, destination, kind, ("name", name)], *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_drivers_have_their_own_names_as_labels() {
        let mut text = Text::default();
        let counters = [("frames".to_owned(), 3), ("segments.lost".to_owned(), 0)];
        own(&mut text, [("stream", "1"), ("destination", "2"), ("type", "pulse")], &counters);
        let line = |name: &str, value: u64| {
            format!(
                "{DRIVER_TOTAL}{{stream=\"1\",destination=\"2\",type=\"pulse\",name=\"{name}\"}} {value}\n"
            )
        };
        assert_eq!(text.0, line("frames", 3) + &line("segments.lost", 0));
    }
}
