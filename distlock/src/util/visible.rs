//! Keys and names for display. Such text must not control a terminal, nor reorder other text.

use std::fmt::{self, Write as _};

/// Returns true for characters that control, end a line, or set the direction of surrounding text.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
