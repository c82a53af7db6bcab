//! A page template with slots `{{name}}`, which are filled with escaped text, never with markup.

/// A slot of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Name of the stream, or of the page.
    Label,
    /// Whether it shows a stream, a recording or a clip.
    Kind,
    /// Initial state of the page.
    State,
    /// Headline of the notice.
    Headline,
    /// Advice of the notice.
    Advice,
}

const SLOTS: [(&str, Slot); 5] = [
    ("label", Slot::Label),
    ("kind", Slot::Kind),
    ("state", Slot::State),
    ("headline", Slot::Headline),
    ("advice", Slot::Advice),
];

/// Error in a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// An unknown slot.
    #[error("it has an unknown slot \"{0}\"")]
    Unknown(String),
    /// A missing slot.
    #[error("it has no slot \"{0}\"")]
    Missing(&'static str),
}

/// A page: text and slots.
#[derive(Debug)]
pub(super) struct Template {
    parts: Vec<(String, Slot)>,
    rest: String,
}

impl Template {
    /// Parses a page, which must have every slot.
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").unwrap_or((after, ""));
            let slot = SLOTS.iter().find(|(known, _)| *known == name);
            let (_, slot) = slot.ok_or_else(|| TemplateError::Unknown(name.chars().take(40).collect()))?;
            parts.push((before.to_owned(), *slot));
            rest = after;
        }
        for (name, slot) in SLOTS {
            if !parts.iter().any(|(_, found)| *found == slot) {
                return Err(TemplateError::Missing(name));
            }
        }
        Ok(Self { parts, rest: rest.to_owned() })
    }

    /// The page with the text of `text_of` in each slot.
    pub(super) fn fill<'a>(&self, text_of: impl Fn(Slot) -> &'a str) -> String {
        let mut page = String::new();
        for (before, slot) in &self.parts {
            page.push_str(before);
            escape(&mut page, text_of(*slot));
        }
        page.push_str(&self.rest);
        page
    }
}

/// Escapes for text and quoted attributes.
fn escape(page: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            other => page.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_with_escaped_text() {
        let page = Template::parse(
            "<p a=\"{{state}}\" b={{kind}}>{{label}}, {{label}}: {{headline}}.{{advice}}</p>",
        )
        .unwrap();
        let filled = page.fill(|slot| match slot {
            Slot::Label => "<b>\"{{advice}}\" & 'x'",
            Slot::Kind => "stream",
            Slot::State => "starting",
            Slot::Headline => "h",
            Slot::Advice => "",
        });
        let label = "&lt;b&gt;&quot;{{advice}}&quot; &amp; &#39;x&#39;";
        assert_eq!(filled, format!("<p a=\"starting\" b=stream>{label}, {label}: h.</p>"));
    }

    #[test]
    fn a_page_of_another_version_is_refused() {
        let unknown = Template::parse("{{label}}{{colour}}").unwrap_err();
        assert_eq!(unknown, TemplateError::Unknown("colour".to_owned()));
        let missing = Template::parse("{{label}}{{kind}}{{state}}{{advice}}").unwrap_err();
        assert_eq!(missing, TemplateError::Missing("headline"));
        assert_eq!(Template::parse("{{labe").unwrap_err(), TemplateError::Unknown("labe".to_owned()));
    }
}
