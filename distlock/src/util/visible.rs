//! Keys and names for display. Such text must not control a terminal, nor reorder other text.

use std::fmt::{self, Write as _};

/// Returns true for characters that control, end a line, or set the direction of surrounding text.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text of a value. `to_string` would panic if the `Display` of a user's type fails.
pub(crate) fn text_of(value: &dyn fmt::Display) -> Result<String, fmt::Error> {
    let mut text = String::new();
    write!(text, "{value}").map(|()| text)
}

/// Returns the start of a text, of at most `max` bytes.
pub(crate) fn start(text: &str, max: usize) -> &str {
    let mut ends = (0..=max.min(text.len())).rev();
    let end = ends.find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Returns a text with a blank in place of every [hidden](is_hidden) character, cut to `max` bytes.
pub(crate) fn cleaned(text: &str, max: usize) -> String {
    let shown = |c| if is_hidden(c) { ' ' } else { c };
    let text: String = text.chars().map(shown).collect();
    start(&text, max).to_owned()
}

/// A text, displayed with `?` in place of every [hidden](is_hidden) character.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visible<'a>(pub(crate) &'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |c| if is_hidden(c) { '?' } else { c };
        self.0.chars().map(shown).try_for_each(|c| f.write_char(c))
    }
}
