//! Tables that fit a terminal of 80 columns, whatever their contents are.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Maximum width of a line.
pub(crate) const WIDTH: usize = 80;

/// The text between two columns.
const GAP: &str = "  ";

/// Minimum width of a shortened column.
const MIN_WIDTH: usize = 8;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// A text, shortened in the middle if there is not enough room.
    Text(&'static str),
    /// A short value, aligned to the right.
    Number(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Column::Text(title) | Column::Number(title) => title,
        }
    }
}

/// Returns a table: a line of titles, then a line for each row.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let widths = widths(columns, rows);
    let titles = columns.iter().map(|column| column.title().to_owned());
    let mut text = line(columns, &widths, &titles.collect::<Vec<_>>());
    for row in rows {
        text.push_str(&line(columns, &widths, row));
    }
    text
}

/// Returns the width of each column. Texts are shortened if necessary, the widest first.
fn widths(columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |(place, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(place));
        let cells = cells.map(|cell| printable(cell).width());
        cells.fold(column.title().width(), usize::max)
    };
    let mut widths: Vec<_> = columns.iter().enumerate().map(widest).collect();
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > WIDTH {
        let texts = columns.iter().enumerate().filter(|(place, column)| {
            matches!(column, Column::Text(_)) && widths[*place] > MIN_WIDTH
        });
        let Some((widest, _)) = texts.max_by_key(|(place, _)| widths[*place]) else {
            break;
        };
        widths[widest] -= 1;
    }
    widths
}

fn line(columns: &[Column], widths: &[usize], cells: &[String]) -> String {
    let mut line = String::new();
    for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
        if !line.is_empty() {
            line.push_str(GAP);
        }
        let cell = shorten(&printable(cell), *width);
        let padding = " ".repeat(width.saturating_sub(cell.width()));
        match column {
            Column::Text(_) => line.extend([cell, padding]),
            Column::Number(_) => line.extend([padding, cell]),
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// Removes the middle of a text that is too long, because keys begin with the kind of a resource
/// and end with its id.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head = take_width(text.chars(), kept.div_ceil(2));
    let tail = take_width(text.chars().rev(), kept / 2);
    let tail: String = tail.chars().rev().collect();
    format!("{head}…{tail}")
}

fn take_width(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut remaining = width;
    let fits = |char: &char| {
        let rest = remaining.checked_sub(char.width().unwrap_or(0));
        remaining = rest.unwrap_or(remaining);
        rest.is_some()
    };
    chars.take_while(fits).collect()
}

/// Returns the text with `?` in place of control characters, and of those that set the direction of
/// the text around them. A server's text must neither control the terminal nor pass for other text.
pub(crate) fn printable(text: &str) -> String {
    let is_hidden = |char: char| {
        char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |char: char| if is_hidden(char) { '?' } else { char };
    text.chars().map(shown).collect()
}

/// Wraps the words at the width of a line. Lines after the first begin with `indent` spaces.
pub(crate) fn wrap(text: &str, indent: usize) -> String {
    let width = WIDTH.saturating_sub(indent).max(MIN_WIDTH);
    let mut lines = vec![String::new()];
    for word in printable(text).split_whitespace() {
        // A single word may be too long for any line.
        let word = shorten(word, width);
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(&word);
        } else if line.width() + 1 + word.width() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::Text("KEY"),
        Column::Text("HOLDER"),
        Column::Number("WAITING"),
    ];

    fn rows(cells: &[[&str; 3]]) -> Vec<Vec<String>> {
        let rows = cells.iter();
        rows.map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn short_cells_are_unchanged() {
        let text = table(COLUMNS, &rows(&[["a", "host:7", "12"], ["long", "h", "3"]]));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "KEY   HOLDER  WAITING",
                "a     host:7       12",
                "long  h             3"
            ]
        );
    }

    #[test]
    fn nothing_is_wider_than_80_columns() {
        let key = format!("{{tenant:{}}}:stock:{}", "x".repeat(400), "4".repeat(40));
        let holder = "ありがとう".repeat(20);
        for row in [
            [&*key, "h", "1"],
            ["k", &holder, "1"],
            [&key, &holder, "18446744073709551615"],
        ] {
            let text = table(COLUMNS, &rows(&[row, ["k", "h", "1"]]));
            for line in text.lines() {
                assert!(line.width() <= WIDTH, "{} columns: {line}", line.width());
            }
        }
    }

    #[test]
    fn a_long_key_keeps_its_two_ends() {
        assert_eq!(shorten("inventory:1000000", 17), "inventory:1000000");
        assert_eq!(shorten("inventory:1000000", 11), "inven…00000");
        assert_eq!(shorten("日本語日本語", 6), "日…語");
    }

    #[test]
    fn wide_cells_are_shortened_before_narrow_ones() {
        let text = table(
            COLUMNS,
            &rows(&[[&"k".repeat(200), "a-host.example:12345", "1"]]),
        );
        assert!(text.contains("a-host.example:12345"), "{text}");
    }

    #[test]
    fn server_text_does_not_control_the_terminal() {
        let text = table(COLUMNS, &rows(&[["a\u{1b}[2J", "b\nc\u{202e}d", "1"]]));
        assert!(text.contains("a?[2J") && text.contains("b?c?d"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn words_are_wrapped_behind_their_indent() {
        let text = wrap(&"word ".repeat(60), 10);
        for (number, line) in text.lines().enumerate() {
            let indent = if number == 0 { 10 } else { 0 };
            assert!(line.width() + indent <= WIDTH, "{line}");
            assert!(number == 0 || line.starts_with(&" ".repeat(10)), "{line}");
        }
    }
}
