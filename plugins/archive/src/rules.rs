//! Rules of retention: of a destination, and of the operator for the operator's store. [`retention`](crate::retention)
//! applies them.

use satcast_plugin_api::Error;

/// How long recordings stay at the store. `None`: without a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Days from their start.
    pub(crate) days: Option<u32>,
    /// Gigabytes (10^9 bytes) of all recordings of the destination.
    pub(crate) gigabytes: Option<u32>,
}

/// The operator's rules for recordings in the operator's store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// For destinations that name none.
    pub(crate) usual: Rules,
    /// Upper bounds for all.
    pub(crate) most: Rules,
}

impl Bounds {
    /// The rules that apply to recordings whose destination names `own`.
    pub(crate) fn bind(&self, own: Rules) -> Rules {
        let least = |own: Option<u32>, usual: Option<u32>, most| own.or(usual).into_iter().chain(most).min();
        Rules {
            days: least(own.days, self.usual.days, self.most.days),
            gigabytes: least(own.gigabytes, self.usual.gigabytes, self.most.gigabytes),
        }
    }

    /// Checks the rules of a destination that uses the operator's store.
    ///
    /// # Errors
    /// `Config`, naming the field.
    pub(crate) fn check(&self, own: Rules) -> Result<(), Error> {
        let fields = [
            ("retentionDays", own.days, self.most.days, "days"),
            ("maxGigabytes", own.gigabytes, self.most.gigabytes, "gigabytes"),
        ];
        for (field, own, most, unit) in fields {
            if let (Some(own), Some(most)) = (own, most)
                && own > most
            {
                return Err(Error::config(format!(
                    "{field}: the store of this service keeps at most {most} {unit}; enter a smaller number, or use a store \
                     of your own"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn the_operators_bounds_are_defaults_and_maxima() {
        let settings = Settings {
            retention_days: Some(30),
            retention_days_limit: Some(90),
            max_gigabytes_limit: Some(50),
            ..Settings::default()
        };
        let bounds = settings.bounds();
        let rules = |days, gigabytes| Rules { days, gigabytes };
        assert_eq!(bounds.bind(Rules::default()), rules(Some(30), Some(50)));
        assert_eq!(bounds.bind(rules(Some(60), Some(9))), rules(Some(60), Some(9)));
        assert_eq!(bounds.bind(rules(Some(91), Some(51))), rules(Some(90), Some(50)));
        assert_eq!(Bounds::default().bind(Rules::default()), Rules::default());
        bounds.check(rules(Some(90), Some(50))).unwrap();
        bounds.check(Rules::default()).unwrap();
        let refused = bounds.check(rules(Some(91), None)).unwrap_err();
        assert_eq!(
            refused,
            Error::config(
                "retentionDays: the store of this service keeps at most 90 days; enter a smaller number, or use a store of \
                 your own"
            )
        );
        assert!(bounds.check(rules(None, Some(51))).unwrap_err().message.starts_with("maxGigabytes: "));
    }
}
