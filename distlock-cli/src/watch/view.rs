//! The terminal view of the locks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, TableState};

use crate::output::table::{printable, shorten};
use crate::output::time::{ago, kept, short};
use crate::watch::model::{HeldLock, Model};

/// The length from which on a queue is noteworthy.
const LONG_QUEUE: u64 = 10;

/// Draws the title, a summary, the locks, and the footer.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, title: &str, table: &mut TableState) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [top, numbers, middle, bottom] = areas.areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(title.to_owned(), bold), top);
    frame.render_widget(Line::raw(summary(model)), numbers);
    let width = usize::from(middle.width);
    frame.render_stateful_widget(locks(model, width), middle, table);
    frame.render_widget(Line::raw(footer(model)), bottom);
}

fn summary(model: &Model) -> String {
    format!(
        "{} held, {} waiting, at least {:.1} acquisitions/s",
        model.held(),
        model.waiting(),
        model.rate()
    )
}

fn footer(model: &Model) -> String {
    match model.error() {
        Some(error) => format!("! {} (showing the last result)", printable(error)),
        None => "q quits, up and down scroll".into(),
    }
}

fn locks(model: &Model, width: usize) -> Table<'static> {
    const NUMBERS: [usize; 4] = [7, 10, 8, 8];
    // There are two more columns than numbers, with a space after each except the last.
    let others: usize = NUMBERS.iter().sum();
    let texts = width.saturating_sub(others + NUMBERS.len() + 1);
    let key = texts.saturating_mul(3) / 5;
    let (key, holder) = (key.max(8), texts.saturating_sub(key).max(8));
    let rows = model
        .locks()
        .into_iter()
        .map(|lock| row(lock, model.hand_offs(&lock.key), key, holder))
        .collect::<Vec<_>>();
    let widths = [key, holder].into_iter().chain(NUMBERS);
    let columns = widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let titles = ["KEY", "HOLDER", "HELD", "EXPIRES IN", "WAITING", "HANDOFFS"];
    let header = Row::new(titles).style(Style::new().add_modifier(Modifier::REVERSED));
    Table::new(rows, columns)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn row(lock: &HeldLock, hand_offs: u32, key: usize, width: usize) -> Row<'static> {
    let queue = Cell::from(lock.queue_length.to_string());
    let (holder, held) = match lock.kept_until {
        None => (printable(&lock.holder), short(ago(lock.since))),
        Some(until) if kept(until).len() <= width => (kept(until), "-".into()),
        // The column EXPIRES IN shows until when.
        Some(_) => ("kept, work finished".into(), "-".into()),
    };
    Row::new([
        Cell::from(shorten(&printable(&lock.key), key)),
        Cell::from(shorten(&holder, width)),
        Cell::from(held),
        Cell::from(lock.expires_in.map_or("-".into(), short)),
        if lock.queue_length >= LONG_QUEUE {
            queue.style(Style::new().fg(Color::Yellow))
        } else {
            queue
        },
        Cell::from(hand_offs.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::watch::model::seen;

    fn screen(model: &Model, width: u16, height: u16, table: &mut TableState) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let drawn = terminal.draw(|frame| draw(frame, model, "redis://host", table));
        let buffer = drawn.expect("a frame").buffer.clone();
        let lines = buffer.content.chunks(usize::from(width));
        lines
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>())
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn holders_queues_and_rates_are_shown() {
        let mut model = Model::default();
        let other = seen("shop:2", "host:8", 2, 12);
        for first in [
            seen("shop:1", "host:7", 1, 3),
            seen("shop:1", "host:9", 3, 2),
        ] {
            model.record(vec![first, other.clone()], Duration::from_secs(1));
        }
        let lines = screen(&model, 80, 8, &mut TableState::default());
        assert_eq!(lines[0], "redis://host");
        assert_eq!(lines[1], "2 held, 14 waiting, at least 1.0 acquisitions/s");
        for title in ["KEY", "HOLDER", "HELD", "EXPIRES IN", "WAITING", "HANDOFFS"] {
            assert!(lines[2].contains(title), "{lines:?}");
        }
        for (line, [key, holder, waiting, hand_offs]) in [
            (&lines[3], ["shop:2", "host:8", "12", "0"]),
            (&lines[4], ["shop:1", "host:9", "2", "1"]),
        ] {
            let cells: Vec<_> = line.split_whitespace().collect();
            assert_eq!(cells[..2], [key, holder], "{line}");
            assert_eq!(cells[4..], [waiting, hand_offs], "{line}");
        }
        assert_eq!(lines[7], "q quits, up and down scroll");
    }

    #[test]
    fn an_outage_is_shown_next_to_the_last_view() {
        let mut model = Model::default();
        model.record(vec![seen("shop:1", "host:7", 1, 0)], Duration::from_secs(1));
        model.record_failure("no answer".into());
        let lines = screen(&model, 80, 6, &mut TableState::default());
        assert!(lines[3].starts_with("shop:1"), "{lines:?}");
        assert_eq!(lines[5], "! no answer (showing the last result)");
    }

    #[test]
    fn long_names_and_small_terminals_do_no_harm() {
        let mut model = Model::default();
        let long = seen(&"k".repeat(500), &"h".repeat(100), 1, 0);
        model.record(vec![long; 1], Duration::from_secs(1));
        let lines = screen(&model, 80, 6, &mut TableState::default());
        assert!(lines[3].contains('…'), "{lines:?}");
        for (width, height) in [(1, 1), (10, 2), (300, 3)] {
            screen(&model, width, height, &mut TableState::default());
        }
    }

    #[test]
    fn rows_beyond_the_screen_are_scrolled_to() {
        let mut model = Model::default();
        let locks = (0..50).map(|number| seen(&format!("k{number:02}"), "h", number, 0));
        model.record(locks.collect(), Duration::from_secs(1));
        let mut table = TableState::default().with_selected(Some(49));
        let lines = screen(&model, 80, 10, &mut table);
        let is_shown = |key| lines.iter().any(|line| line.starts_with(key));
        assert!(is_shown("k49") && !is_shown("k00"), "{lines:?}");
    }
}
