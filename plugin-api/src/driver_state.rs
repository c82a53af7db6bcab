//! Which reports of a state are news.

pub use satcast_types::State;

/// What was told of a state last: a driver may report the same with each packet, which is no news.
#[derive(Debug, Default)]
pub struct Reported(Option<State>);

impl Reported {
    /// Whether a report is to be passed on. One with a reason always is, and so is what comes after it.
    pub fn is_news(&mut self, state: State, has_reason: bool) -> bool {
        let told = (!has_reason).then_some(state);
        std::mem::replace(&mut self.0, told) != told || has_reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_told_again_only_after_something_else() {
        let mut reported = Reported::default();
        let reports = [
            (State::Live, false, true),
            (State::Live, false, false),
            (State::Connecting, true, true),
            (State::Connecting, true, true),
            (State::Connecting, false, true),
            (State::Connecting, false, false),
            (State::Live, false, true),
        ];
        for (number, (state, has_reason, is_news)) in reports.into_iter().enumerate() {
            assert_eq!(reported.is_news(state, has_reason), is_news, "report {number}");
        }
    }
}
