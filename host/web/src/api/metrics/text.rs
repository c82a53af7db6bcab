//! The text format of Prometheus.

use std::fmt::{Display, Write as _};

/// Lines of the text format; writing to a string cannot fail.
#[derive(Default)]
pub(in crate::api) struct Text(pub(in crate::api) String);

impl Text {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { "{" } else { "," };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// A family with one sample without labels.
    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// How often something was done and for how long, as a summary without quantiles. `name` ends in `_seconds`.
    pub(super) fn summary(&mut self, name: &str, help: &str, (count, sum): (u64, std::time::Duration)) {
        self.family(name, "summary", help);
        self.sample(&format!("{name}_sum"), &[], sum.as_secs_f64());
        self.sample(&format!("{name}_count"), &[], count);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_text_format() {
        let mut text = Text::default();
        text.family("a_total", "counter", "What it is");
        text.sample("a_total", &[("x", "1"), ("y", "a\"b\\c\nd")], 7);
        text.single("b", "gauge", "Another", 0.5);
        text.summary("c_seconds", "A time", (2, std::time::Duration::from_millis(250)));
        assert_eq!(
            text.0,
            "# HELP a_total What it is\n# TYPE a_total counter\na_total{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 7\n\
             # HELP b Another\n# TYPE b gauge\nb 0.5\n\
             # HELP c_seconds A time\n# TYPE c_seconds summary\nc_seconds_sum 0.25\nc_seconds_count 2\n"
        );
    }
}
