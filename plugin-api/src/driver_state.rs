//! Suppresses repeated state reports.

pub use satcast_types::State;

/// The last reported state. A driver may report the same state with each packet; repeats are not passed on.
#[derive(Debug, Default)]
pub struct Reported(Option<State>);

impl Reported {
    /// Whether a report is passed on. A report with a reason and the report after it always are.
    pub fn is_news(&mut self, state: State, has_reason: bool) -> bool {
        let reported = (!has_reason).then_some(state);
        std::mem::replace(&mut self.0, reported) != reported || has_reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_state_is_not_passed_on() {
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
