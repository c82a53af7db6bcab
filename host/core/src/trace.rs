//! Where a span stands in its trace (W3C Trace Context): for the exporter of traces, and for requests to other services.
//!
//! Spans of the service have the level `error`, so that no `[log] level` takes their ids out of the lines inside them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::Span;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::LookupSpan as _;

/// The header that carries a context.
pub const HEADER: &str = "traceparent";
/// Bytes of a header of version 00.
const HEADER_BYTES: usize = 55;

static IS_EXPORTED: AtomicBool = AtomicBool::new(false);
static SENT: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// A span of a trace, as another service knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Number of the trace, not zero.
    pub trace: u128,
    /// Number of the span, not zero.
    pub span: u64,
    /// Whether the trace is exported.
    pub is_sampled: bool,
}

/// What the exporter keeps with each span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub context: TraceContext,
    /// Number of the parent; `None` for the first span of a trace.
    pub parent: Option<u64>,
}

/// Traces are exported from now on.
pub fn exports() {
    IS_EXPORTED.store(true, Ordering::Relaxed);
}

/// Whether traces are exported. Requests of viewers have a span only then.
pub fn is_exported() -> bool {
    IS_EXPORTED.load(Ordering::Relaxed)
}

/// Counts spans that the collector has taken.
pub fn count_sent(spans: usize) {
    SENT.fetch_add(spans as u64, Ordering::Relaxed);
}

/// Counts spans that no collector gets.
pub fn count_lost(spans: usize) {
    LOST.fetch_add(spans as u64, Ordering::Relaxed);
}

/// Spans that the collector has taken, and those that were lost, since the start.
pub fn counts() -> (u64, u64) {
    (SENT.load(Ordering::Relaxed), LOST.load(Ordering::Relaxed))
}

impl TraceContext {
    /// The context in a header; `None` if its form is not valid. Fields of later versions are ignored.
    pub fn parse(header: &str) -> Option<Self> {
        let (own, rest) = header.split_at_checked(HEADER_BYTES)?;
        let mut parts = own.split('-');
        let mut part = |digits: usize| {
            let part = parts.next()?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            if part.len() != digits || !part.bytes().all(is_hex) {
                return None;
            }
            u128::from_str_radix(part, 16).ok()
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_known = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
        let span = u64::try_from(span).ok()?;
        let is_valid = is_known && version != 0xff && trace != 0 && span != 0;
        is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// The context of the current span; `None` without a span, or when no traces are exported.
    pub fn current() -> Option<Self> {
        with_place(&Span::current(), |place| place.context)
    }

    /// Makes `span` a part of this trace. It must have no spans inside yet.
    pub fn adopt(self, span: &Span) {
        with_place(span, |place| {
            (place.context.trace, place.context.is_sampled) = (self.trace, self.is_sampled);
            place.parent = Some(self.span);
        });
    }
}

impl fmt::Display for TraceContext {
    /// The header, of version 00.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

fn with_place<T>(span: &Span, work: impl FnOnce(&mut Place) -> T) -> Option<T> {
    if !is_exported() {
        return None;
    }
    let found = span.with_subscriber(|(id, dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        span.extensions_mut().get_mut::<Place>().map(work)
    });
    found.flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written() {
        let context = TraceContext::parse(VALID).unwrap();
        assert_eq!(context.to_string(), VALID);
        assert!(context.is_sampled);
        let later = format!("cc{}-more", &VALID[2..]);
        assert_eq!(TraceContext::parse(&later), Some(context));
        let other = TraceContext::parse(&VALID.replace("-01", "-02")).unwrap();
        assert!(!other.is_sampled);
    }

    #[test]
    fn an_invalid_header_is_ignored() {
        let cut = &VALID[..54];
        for header in [
            "",
            cut,
            &format!("{VALID}-more"),
            &format!("ff{}", &VALID[2..]),
            &VALID.to_uppercase(),
            &VALID.replace("4bf9", "+bf9"),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID.replacen('-', "_", 1),
            &"é".repeat(28),
        ] {
            assert_eq!(TraceContext::parse(header), None, "{header}");
        }
    }
}
