//! Secrets in the forms in which servers repeat them.

use std::time::{Duration, Instant};

use super::*;

fn whole(text: &str, secrets: &[&str]) -> String {
    let readings = Readings::of(text);
    readings.hide(readings.whole(&Secrets::new(secrets.iter().copied())))
}

#[test]
fn whole_cut_and_escaped_secrets_are_hidden() {
    let secrets = ["live_4711_Geheim?a=b%20c", "abc"];
    for (text, shown) in [
        ("no such stream", "no such stream"),
        ("stream live_4711_Geheim?a=b%20c is taken", "stream *** is taken"),
        ("stream LIVE_4711_GEHEIM", "stream ***"),
        ("cut: live_471", "cut: ***"),
        ("cut: live_47", "cut: live_47"),
        ("decoded live_4711_Geheim?a=b c!", "decoded ***!"),
        ("short abc and ab", "short *** and ab"),
        ("ünicode häbcä", "ünicode häbcä"),
    ] {
        assert_eq!(redact(text, secrets), shown, "{text}");
    }
    assert_eq!(redact("xabcx abcabc", ["abc"]), "x***x ******");
    assert_eq!(redact("für größe", ["größe"]), "für ***");
    assert_eq!(redact("\u{1f00}\u{1f01}\u{1f02}", ["\u{1f03}\u{1f04}\u{1f05}"]), "\u{1f00}\u{1f01}\u{1f02}");
    for nothing in [vec![], vec![""], vec!["+"], vec!["%20"]] {
        assert_eq!(redact("any thing", nothing), "any thing");
    }
}

#[test]
fn escapes_between_short_fragments_hide_nothing() {
    for (secret, echo) in [
        ("uniqueC with space inside", "uniqueC%20with%20space%20inside"),
        ("uniqueC with space inside", "uniqueC+with+space+inside"),
        ("uniqueE'<script>", "uniqueE%27%3Cscript%3E"),
        ("uniqueE'<script>", "uniqueE&#x27;&lt;script&gt;"),
        ("uniqueE'<script>", "uniqueE&amp;#39;&amp;lt;script&amp;gt;"),
        ("uniqueG#frag", "uniqueG%23frag"),
        ("uniqueA\u{e9}\u{1f600}\\back", "uniqueA\\u00e9\\ud83d\\ude00\\\\back"),
        ("uniqueA\u{e9}\u{1f600}\\back", "uniqueA\\u{e9}\\xf0\\x9f\\x98\\x80\\back"),
        ("uniqueA\u{e9}b", "uniqueA%E9b"),
        ("uniqueA\u{e9}b", "uniqueA%C3%A9b"),
        ("uniqueA%20b", "uniqueA%2520b"),
        ("uniqueA b", "uniqueA%25252520b"),
        ("uniqueA%20b", "uniqueA b"),
    ] {
        let text = format!("stream \"{echo}\" is taken");
        assert_eq!(redact(&text, [secret]), "stream \"***\" is taken", "{text}");
        assert_eq!(whole(&text, &[secret]), "stream \"***\" is taken", "{text}");
    }
    assert_eq!(whole("%2Fabc%20%61%62c", &["abc"]), "%2F***%20***", "other escapes stay as they are");
}

#[test]
fn escapes_are_undone_up_to_the_limit() {
    let escaped = |rounds: usize| format!("uniqueA%{}20b", "25".repeat(rounds - 1));
    assert_eq!(whole(&escaped(UNESCAPE_ROUNDS_MAX), &["uniqueA b"]), "***");
    let deeper = escaped(UNESCAPE_ROUNDS_MAX + 1);
    assert_eq!(whole(&deeper, &["uniqueA b"]), deeper);
}

#[test]
fn secrets_that_overlap_are_hidden_together() {
    assert_eq!(whole("x abcdef y", &["abcd", "cdef"]), "x *** y");
    assert_eq!(whole("abababa", &["abab"]), "***a", "two that overlap, and the rest");
    assert_eq!(whole("abaababaaba!", &["abaaba"]), "***!");
    assert_eq!(whole("key1-long key1", &["key1", "key1-long"]), "*** ***");
}

/// Random numbers, always the same ones (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 8).unwrap() % limit
    }

    fn text(&mut self, chars: usize) -> String {
        const ALPHABET: &str =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~ '\"<>&#;%\\/?=+:é߀😀";
        let alphabet: Vec<char> = ALPHABET.chars().collect();
        (0..chars).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }

    /// A character escaped for a URL, for HTML or for JSON, with the escape mark `mark`.
    fn escape(&mut self, mark: char, char: char) -> String {
        let mut bytes = [0; 4];
        let bytes = char.encode_utf8(&mut bytes).bytes();
        let mut units = [0; 2];
        let units = char.encode_utf16(&mut units).iter();
        let number = u32::from(char);
        match (mark, self.below(4), char) {
            ('%', 0, ' ') => "+".to_owned(),
            ('%', 0, _) => units.map(|unit| format!("%u{unit:04X}")).collect(),
            ('%', 1, _) => bytes.map(|byte| format!("%{byte:02X}")).collect(),
            ('%', ..) => bytes.map(|byte| format!("%{byte:02x}")).collect(),
            ('&', 0 | 1, '&') => "&amp;".to_owned(),
            ('&', 0 | 1, '<') => "&lt;".to_owned(),
            ('&', 0 | 1, '>') => "&gt;".to_owned(),
            ('&', 0 | 1, '"') => "&quot;".to_owned(),
            ('&', 0 | 1, '\'') => "&apos;".to_owned(),
            ('&', 2, _) => format!("&#x{number:X};"),
            ('&', ..) => format!("&#{number};"),
            (_, 0, '"' | '\'' | '\\' | '/') => format!("\\{char}"),
            (_, 1, _) => bytes.map(|byte| format!("\\x{byte:02x}")).collect(),
            (_, 2, _) => format!("\\u{{{number:x}}}"),
            _ => units.map(|unit| format!("\\u{unit:04x}")).collect(),
        }
    }

    /// `text` with some of its characters escaped in up to three ways. Each way escapes its own mark everywhere, and backslashes everywhere
    /// or nowhere: otherwise the text could not be read back.
    fn escaped(&mut self, text: &str) -> String {
        let ways: Vec<char> = ['%', '&', '\\'].into_iter().filter(|_| self.below(2) == 0).collect();
        let escapes_backslash = ways.contains(&'\\') || self.below(2) == 0;
        let mut escaped = String::new();
        for char in text.chars() {
            let is_escaped = match char {
                '\\' => escapes_backslash,
                '+' => ways.contains(&'%'),
                other => ways.contains(&other) || self.below(3) == 0,
            };
            if is_escaped && !ways.is_empty() {
                let way = ways[self.below(ways.len())];
                escaped.push_str(&self.escape(way, char));
            } else {
                escaped.push(char);
            }
        }
        escaped
    }
}

/// As the host reads it and as drivers do.
#[test]
fn every_escaped_secret_is_hidden_and_nothing_else() {
    const CASES: usize = 4_000;
    const SECRET_CHARS_MIN: usize = 4;
    let mut random = Random(0x5e90_e475);
    for case in 0..CASES {
        let chars = SECRET_CHARS_MIN + random.below(30);
        let secret = format!("K{}9", random.text(chars));
        let mut echo = random.escaped(&secret);
        if random.below(4) == 0 {
            echo = random.escaped(&echo);
        }
        let text = format!("stream {echo} is taken");
        for shown in [whole(&text, &[&secret]), redact(&text, [secret.as_str()])] {
            assert_eq!(shown, "stream *** is taken", "case {case}: {secret} in {text}");
        }
        let (chars, other) = (random.below(60), random.text(chars + 20));
        let harmless = random.text(chars) + &random.escaped(&other);
        for shown in [whole(&harmless, &[&secret]), redact(&harmless, [secret.as_str()])] {
            assert_eq!(shown, harmless, "case {case}: {secret}");
        }
    }
}

/// With quadratic time this would take an hour.
#[test]
fn hostile_texts_take_linear_time() {
    const TEXT_BYTES: usize = 128 * 1024;
    const SECRET_BYTES: usize = 2048;
    const PATIENCE: Duration = Duration::from_secs(30);
    let secret = "a".repeat(SECRET_BYTES);
    let almost = "a".repeat(SECRET_BYTES - 1) + "b";
    let began = Instant::now();
    for escape in
        ["a", "%61", "%252525", "%25", "&", "&#x000000", "\\", "\\u{", "\\ud83d", "%e9", "%f0%9f%98"]
    {
        let text = escape.repeat(TEXT_BYTES / escape.len());
        let secrets = [secret.as_str(), almost.as_str()];
        let (all, cut) = (whole(&text, &secrets), redact(&text, secrets));
        assert!(all.len() <= text.len() && cut.len() <= all.len(), "{escape}");
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}
