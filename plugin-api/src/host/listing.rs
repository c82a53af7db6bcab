//! A driver's list of its recordings: the usable ones, and separately those that break a rule.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::recording::{RECORDING_BYTES_MAX, RECORDINGS_MAX, Recording};

/// Most recordings that a [`Listing`] names because they break a rule; it only counts the others.
pub const REFUSED_NAMED_MAX: usize = 4;
/// Longest prefix of a name that is shown, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Longest reason that is shown, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Marks a cut text.
const CUT: &str = "...";

/// Every recording that a driver knows.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The valid ones.
    pub recordings: Vec<Recording>,
    /// The first [`REFUSED_NAMED_MAX`] that break a rule.
    pub refused: Vec<RefusedRecording>,
    /// Number of all that break a rule.
    pub refused_count: usize,
}

/// A recording that breaks a rule. Its texts are short and printable ASCII.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecording {
    /// Position in the list, from 1.
    pub place: usize,
    /// Prefix of its name, or of its JSON form if no name can be read.
    pub name: String,
    /// The reason: the rule that it breaks.
    pub why: String,
}

impl Listing {
    /// Nothing was refused, so a recording that is not listed is unknown to the driver.
    pub fn is_whole(&self) -> bool {
        self.refused_count == 0
    }

    /// The broken rules, with the first few recordings by name; `None` when there are none.
    pub fn complaint(&self) -> Option<String> {
        let named: Vec<String> = self.refused.iter().map(ToString::to_string).collect();
        let others = self.refused_count.saturating_sub(named.len());
        let others = if others == 0 { String::new() } else { format!("; and {others} more") };
        (!self.is_whole()).then(|| format!("{}{others}", named.join("; ")))
    }

    /// The recordings, if none was refused.
    ///
    /// # Errors
    /// The [`Listing::complaint`].
    pub fn whole(self) -> Result<Vec<Recording>, Error> {
        match self.complaint() {
            Some(complaint) => Err(Error::internal(complaint)),
            None => Ok(self.recordings),
        }
    }

    /// Checks a list from another process again.
    ///
    /// # Errors
    /// Over [`RECORDINGS_MAX`] recordings.
    pub fn checked(self) -> Result<Self, Error> {
        let refused_count = self.refused_count.max(self.refused.len());
        let mut checked = Self { refused_count: refused_count.min(RECORDINGS_MAX), ..Self::default() };
        for refused in self.refused.into_iter().take(REFUSED_NAMED_MAX) {
            let (name, why) =
                (printable(&refused.name, NAME_BYTES_MAX), printable(&refused.why, REASON_BYTES_MAX));
            checked.refused.push(RefusedRecording { name, why, ..refused });
        }
        for (index, recording) in self.recordings.into_iter().enumerate() {
            checked.check_count()?;
            match recording.check() {
                Ok(()) => checked.recordings.push(recording),
                Err(error) => checked.refuse(index + 1, &recording.file_name, &error),
            }
        }
        Ok(checked)
    }

    /// Adds the next recording in its JSON form.
    ///
    /// # Errors
    /// Over [`RECORDINGS_MAX`] recordings.
    pub(super) fn add(&mut self, json: &str) -> Result<(), Error> {
        self.check_count()?;
        match parse(json) {
            Ok(recording) => self.recordings.push(recording),
            Err(error) => {
                let place = self.recordings.len() + self.refused_count + 1;
                self.refuse(place, &name_in(json).unwrap_or_else(|| json.to_owned()), &error);
            }
        }
        Ok(())
    }

    fn refuse(&mut self, place: usize, name: &str, error: &Error) {
        self.refused_count += 1;
        if self.refused.len() < REFUSED_NAMED_MAX {
            let (name, why) = (printable(name, NAME_BYTES_MAX), printable(&error.message, REASON_BYTES_MAX));
            self.refused.push(RefusedRecording { place, name, why });
        }
    }

    fn check_count(&self) -> Result<(), Error> {
        if self.recordings.len().saturating_add(self.refused_count) < RECORDINGS_MAX {
            return Ok(());
        }
        Err(too_many())
    }
}

fn too_many() -> Error {
    Error::internal(format!("the driver lists over {RECORDINGS_MAX} recordings"))
}

impl std::fmt::Display for RefusedRecording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} in its list, \"{}\": {}", self.place, self.name, self.why)
    }
}

/// Reads and checks the JSON form of a recording.
///
/// # Errors
/// `Internal`: the form is too long, cannot be read, or breaks a rule.
pub(super) fn parse(json: &str) -> Result<Recording, Error> {
    if json.len() > RECORDING_BYTES_MAX {
        return Err(Error::internal(format!("a recording has over {RECORDING_BYTES_MAX} bytes of JSON")));
    }
    let recording: Recording = serde_json::from_str(json)
        .map_err(|error| Error::internal(format!("a recording cannot be read: {error}")))?;
    recording.check()?;
    Ok(recording)
}

/// The name in the JSON form of a refused recording.
fn name_in(json: &str) -> Option<String> {
    if json.len() > RECORDING_BYTES_MAX {
        return None;
    }
    let form: serde_json::Value = serde_json::from_str(json).ok()?;
    Some(form.get("fileName")?.as_str()?.to_owned())
}

/// The beginning of a text with everything but printable ASCII escaped. Short printable ASCII stays unchanged.
fn printable(text: &str, bytes_max: usize) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter {
            ' '..='~' => shown.push(letter),
            _ => shown.extend(letter.escape_default()),
        }
        if shown.len() > bytes_max {
            shown.truncate(bytes_max - CUT.len());
            shown.push_str(CUT);
            break;
        }
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed step is a failed test.
mod tests {
    use super::*;

    fn json(name: &str) -> String {
        let form = serde_json::json!({
            "fileName": name, "destinationId": 7, "sessionId": "s", "state": "uploading", "sizeBytes": 3,
            "uploadedBytes": 2, "durationMs": 1, "error": null, "errorClass": null, "url": null, "startedAtMs": 5,
            "changedAtMs": 6, "attempt": 0, "attemptOpened": false
        });
        form.to_string()
    }

    #[test]
    fn a_long_or_broken_form_is_refused() {
        let json = json("a.mp4");
        let padded = format!("{json}{}", " ".repeat(RECORDING_BYTES_MAX - json.len()));
        assert_eq!(parse(&padded).unwrap(), parse(&json).unwrap());
        let refused = parse(&format!("{padded} ")).unwrap_err();
        assert!(refused.message.contains(&RECORDING_BYTES_MAX.to_string()), "{refused}");
        assert!(parse("{}").is_err());
    }

    #[test]
    fn a_bad_name_is_reported_and_hides_no_other_recording() {
        let mut listing = Listing::default();
        for name in ["a.mp4", "../\n\u{1b}[31mb", "c.mp4"] {
            listing.add(&json(name)).unwrap();
        }
        let names: Vec<_> = listing.recordings.iter().map(|one| one.file_name.as_str()).collect();
        assert_eq!(names, ["a.mp4", "c.mp4"]);
        let why = parse(&json("../b")).unwrap_err().message;
        let refused = RefusedRecording { place: 2, name: "../\\n\\u{1b}[31mb".into(), why };
        assert_eq!(listing.refused, [refused]);
        assert!(!listing.is_whole() && listing.whole().is_err());
    }

    #[test]
    fn the_first_refused_are_named_and_the_others_counted() {
        let mut listing = Listing::default();
        assert_eq!((listing.complaint(), listing.is_whole()), (None, true));
        listing.add("no JSON\n").unwrap();
        listing.add(&format!("\"{}\"", "x".repeat(RECORDING_BYTES_MAX))).unwrap();
        listing.add(&json(&"\u{e4}".repeat(500))).unwrap();
        for _ in 3..REFUSED_NAMED_MAX + 7 {
            listing.add(&json("")).unwrap();
        }
        assert_eq!(
            (listing.refused.len(), listing.refused_count),
            (REFUSED_NAMED_MAX, REFUSED_NAMED_MAX + 7)
        );
        assert_eq!(listing.refused[0].name, "no JSON\\n");
        let is_shown = |text: &str, most: usize| {
            text.len() <= most && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        for refused in &listing.refused {
            assert!(
                is_shown(&refused.name, NAME_BYTES_MAX) && is_shown(&refused.why, REASON_BYTES_MAX),
                "{refused}"
            );
        }
        assert!(listing.refused[2].name.ends_with(CUT));
        assert_eq!(
            listing.clone().checked().unwrap(),
            listing,
            "a valid list from another process is unchanged"
        );
    }

    #[test]
    fn complaints_texts() {
        let refused =
            |place| RefusedRecording { place, name: format!("{place}.mp4"), why: "it is bad".into() };
        let listing =
            Listing { refused: vec![refused(2), refused(5)], refused_count: 9, ..Listing::default() };
        let text = "number 2 in its list, \"2.mp4\": it is bad; number 5 in its list, \"5.mp4\": it is bad; and 7 more";
        assert_eq!(listing.complaint().unwrap(), text);
        assert_eq!(listing.whole(), Err(Error::internal(text)));
        assert_eq!(too_many(), Error::internal(format!("the driver lists over {RECORDINGS_MAX} recordings")));
    }

    #[test]
    fn a_list_that_is_too_long_is_refused_as_a_whole() {
        let mut listing = Listing { refused_count: RECORDINGS_MAX - 1, ..Listing::default() };
        listing.add(&json("a.mp4")).unwrap();
        assert_eq!(listing.add(&json("b.mp4")), Err(too_many()));
        assert_eq!(listing.add("bad"), Err(too_many()));
        listing.clone().checked().unwrap();
        listing.refused_count = usize::MAX;
        assert_eq!(listing.checked(), Err(too_many()));
    }

    #[test]
    fn a_list_from_another_process_is_checked_again() {
        let mut listing = Listing::default();
        listing.add(&json("a.mp4")).unwrap();
        let mut outside = listing.recordings[0].clone();
        outside.file_name = "../b.mp4".into();
        listing.recordings.push(outside);
        let line = RefusedRecording { place: 9, name: "c\n".repeat(100), why: "d\n".repeat(500) };
        listing.refused = vec![line; REFUSED_NAMED_MAX + 1];
        let checked = listing.checked().unwrap();
        assert_eq!((checked.recordings.len(), checked.refused.len()), (1, REFUSED_NAMED_MAX));
        assert_eq!(checked.refused_count, REFUSED_NAMED_MAX + 2);
        assert!(!checked.complaint().unwrap().contains('\n'));
    }
}
