//! Runs one opening: catches panics and enforces the stop deadline.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::driver::{BoxFuture, Ctx, DynDestination, Media};
use crate::{Class, Error};

/// `run` with its panics caught and, after the stop request, with a deadline.
pub(super) async fn bounded_run(
    destination: Arc<dyn DynDestination>,
    ctx: Ctx,
    media: Media,
    mut stop_seen: watch::Receiver<bool>,
    deadline_ms: Arc<AtomicU32>,
) -> Result<(), Error> {
    let mut run = match catch_unwind(AssertUnwindSafe(|| destination.run_dyn(ctx, media))) {
        Ok(run) => run,
        Err(panic) => return Err(panic_error(&*panic)),
    };
    let overdue = async {
        // An error means that the instance was destroyed, which ends the run as well.
        let _ = stop_seen.wait_for(|stop| *stop).await;
        tokio::time::sleep(Duration::from_millis(u64::from(deadline_ms.load(Ordering::Acquire)))).await;
    };
    let outcome = tokio::select! {
        outcome = poll_caught(&mut run) => outcome,
        () = overdue => Err(cut_off()),
    };
    // Dropping the author's future may panic, too.
    match catch_unwind(AssertUnwindSafe(|| drop(run))) {
        Ok(()) => outcome,
        Err(panic) => Err(panic_error(&*panic)),
    }
}

/// Polls `run`; a panic in it is its outcome.
async fn poll_caught(run: &mut BoxFuture<Result<(), Error>>) -> Result<(), Error> {
    poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)))
            .unwrap_or_else(|panic| std::task::Poll::Ready(Err(panic_error(&*panic))))
    })
    .await
}

fn cut_off() -> Error {
    Error::internal("the destination did not end within the stop deadline and was cancelled")
}

/// A panic as an error of the driver.
pub(super) fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string());
    Error::new(Class::Panic, format!("the driver panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_texts() {
        assert_eq!(
            cut_off(),
            Error::internal("the destination did not end within the stop deadline and was cancelled")
        );
        let panics = |text: &str| Error::new(Class::Panic, format!("the driver panicked: {text}"));
        assert_eq!(panic_error(&"why"), panics("why"));
        assert_eq!(panic_error(&"why".to_owned()), panics("why"));
        assert_eq!(panic_error(&7), panics("no message"));
    }
}
