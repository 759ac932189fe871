//! Shows how far a run is: a line that is redrawn on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::tally::Tally;

/// How often [`Progress::tick`] is worth calling.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// How long a log may be silent.
const SILENCE: Duration = Duration::from_secs(5);

const BAR: usize = 30;

/// The progress of one run, on stderr.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    terminal: bool,
    started: Instant,
    /// In a log: the quarter that was written last, and when.
    written: (usize, Instant),
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let now = Instant::now();
        Progress {
            what,
            terminal: std::io::stderr().is_terminal(),
            started: now,
            written: (0, now),
        }
    }

    /// Call it every [`TICK`].
    pub(crate) fn tick(&mut self, tally: &Tally) {
        if self.terminal {
            // A closed stderr is no reason to stop working.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", self.line(tally));
            return;
        }
        let quarter = tally.finished() * 4 / tally.orders.max(1);
        let (last, at) = self.written;
        if quarter != last || at.elapsed() > SILENCE {
            self.written = (quarter, Instant::now());
            eprintln!("{}", self.line(tally));
        }
    }

    /// Writes something that stays.
    pub(crate) fn note(&self, text: &str) {
        self.clear();
        eprintln!("{}: {text}", self.what);
    }

    /// The last word; the table follows.
    pub(crate) fn end(&mut self, tally: &Tally) {
        if self.terminal {
            self.clear();
        } else {
            self.tick(tally);
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn line(&self, tally: &Tally) -> String {
        let (finished, orders) = (tally.finished(), tally.orders);
        let filled = finished * BAR / orders.max(1);
        format!(
            "{:<13} [{}{}] {finished}/{orders} orders, {:.1} s",
            self.what,
            "#".repeat(filled),
            ".".repeat(BAR - filled),
            self.started.elapsed().as_secs_f64(),
        )
    }
}
