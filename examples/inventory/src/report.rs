//! The table and the verdict.

use std::fmt;
use std::time::Duration;

use crate::history::History;
use crate::orders::Shop;
use crate::service::{GRACE, LEASE};
use crate::stock::Level;
use crate::tally::{Damage, Tally, Waits};

/// How much later than the end of a dead holder's lock the next one may be.
const SLACK: Duration = Duration::from_secs(1);

const LABEL: usize = 28;
const COLUMN: usize = 22;

/// How one run ended.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) locked: bool,
    pub(crate) orders: usize,
    pub(crate) fulfilled: usize,
    pub(crate) rejected: usize,
    pub(crate) repeated: usize,
    pub(crate) damage: Damage,
    pub(crate) time: Duration,
    pub(crate) waits: Option<Waits>,
    pub(crate) highest_token: Option<u64>,
    pub(crate) casualties: Vec<Casualty>,
    pub(crate) history: History,
}

/// A worker process that died, and what it meant for the others.
#[derive(Clone, Debug)]
pub(crate) struct Casualty {
    pub(crate) pid: u32,
    /// Orders that it was working on, which went to others.
    pub(crate) orders: usize,
    /// The longest time until one of their items was sold again.
    pub(crate) delay: Duration,
}

impl Report {
    pub(crate) fn new(
        locked: bool,
        tally: &Tally,
        shop: &Shop,
        levels: &[Level],
        time: Duration,
        casualties: Vec<Casualty>,
    ) -> Self {
        Report {
            locked,
            orders: tally.orders,
            fulfilled: tally.fulfilled,
            rejected: tally.rejected,
            repeated: tally.repeated,
            damage: tally.damage(&shop.items, levels),
            time,
            waits: tally.waits().filter(|_| locked),
            highest_token: tally.highest_token,
            casualties,
            history: History::new(&tally.calls, &shop.items, levels),
        }
    }

    fn verdict(&self) -> String {
        let Damage {
            oversold,
            lost_updates,
            unconfirmed,
            ..
        } = self.damage;
        match (self.locked, self.damage.is_none()) {
            (true, true) => format!(
                "With the lock all {} confirmed reductions are in the stock.",
                self.fulfilled
            ),
            (true, false) => format!(
                "WITH THE LOCK {lost_updates} reductions were lost, {oversold} items oversold and \
                 {unconfirmed} reductions not confirmed: this is a bug in distlock."
            ),
            (false, true) => {
                "Without the lock nothing went wrong this time: give it more orders, or \
                              more instances."
                    .into()
            }
            (false, false) => format!(
                "Without the lock {lost_updates} of {} confirmed reductions were lost, and {oversold} \
                 items oversold.",
                self.fulfilled
            ),
        }
    }
}

/// All runs side by side.
#[derive(Debug)]
pub(crate) struct Table<'a>(pub(crate) &'a [Report]);

type Cell = fn(&Report) -> Option<String>;

/// Rows that are always there.
const ROWS: [(&str, Cell); 12] = [
    ("orders", |r| Some(r.orders.to_string())),
    ("fulfilled", |r| Some(r.fulfilled.to_string())),
    ("rejected (out of stock)", |r| Some(r.rejected.to_string())),
    ("oversold items", |r| Some(r.damage.oversold.to_string())),
    ("lost updates", |r| Some(r.damage.lost_updates.to_string())),
    ("lost pieces", |r| Some(r.damage.lost_pieces.to_string())),
    ("time", |r| Some(short(r.time))),
    ("waits (calls above 1 ms)", |r| {
        r.locked
            .then(|| r.waits.map_or(0, |waits| waits.calls).to_string())
    }),
    ("wait, total", |r| r.waits.map(|waits| short(waits.total))),
    ("wait, average / p99", |r| {
        r.waits
            .map(|waits| format!("{} / {}", short(waits.average), short(waits.p99)))
    }),
    ("wait, longest", |r| {
        r.waits.map(|waits| short(waits.longest))
    }),
    ("highest fencing token", |r| {
        r.highest_token.map(|token| token.to_string())
    }),
];

/// Rows that are left out where they say nothing.
const EXCEPTIONS: [(&str, Cell); 3] = [
    ("unconfirmed updates", |r| {
        some(r.damage.unconfirmed as usize)
    }),
    ("repeated calls", |r| some(r.repeated)),
    ("workers that died", |r| some(r.casualties.len())),
];

fn some(count: usize) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, label: &str, cells: &[String]| {
            write!(f, "{label:<LABEL$}")?;
            for cell in cells {
                write!(f, "{cell:>COLUMN$}")?;
            }
            writeln!(f)
        };
        let heads: Vec<String> = self.0.iter().map(|r| title(r.locked).to_owned()).collect();
        line(f, "", &heads)?;
        writeln!(f, "{}", "-".repeat(LABEL + COLUMN * self.0.len()))?;
        let exceptions = EXCEPTIONS
            .iter()
            .filter(|(_, cell)| self.0.iter().any(|report| cell(report).is_some()));
        for (label, cell) in ROWS.iter().chain(exceptions) {
            let cells: Vec<String> = self
                .0
                .iter()
                .map(|report| cell(report).unwrap_or_else(|| "-".into()))
                .collect();
            line(f, label, &cells)?;
        }
        writeln!(f)?;
        for report in self.0 {
            for casualty in &report.casualties {
                writeln!(f, "{}", casualty.told(report.locked))?;
            }
        }
        for report in self.0 {
            writeln!(f, "{}", report.verdict())?;
        }
        Ok(())
    }
}

impl Casualty {
    fn told(&self, locked: bool) -> String {
        let Casualty { pid, orders, delay } = self;
        let orders = count(*orders, "order");
        let mut text =
            format!("Process {pid} died with {orders} in hand; others worked off what it left.");
        if locked {
            let bound = LEASE + GRACE + SLACK;
            let kept = if *delay <= bound { "within" } else { "ABOVE" };
            text += &format!(
                " Longest delay for an item: {}, {kept} the bound of {} (lease {} + grace {} + {}).",
                short(*delay),
                short(bound),
                short(LEASE),
                short(GRACE),
                short(SLACK)
            );
        }
        text
    }
}

/// The heading of a run.
pub(crate) fn title(locked: bool) -> &'static str {
    if locked { "with lock" } else { "without lock" }
}

/// So many of something.
pub(crate) fn count(number: usize, one: &str) -> String {
    let many = match one.strip_suffix("ss") {
        Some(_) => "es",
        None => "s",
    };
    format!("{number} {one}{}", if number == 1 { "" } else { many })
}

/// Three digits and a unit.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(locked: bool, lost_updates: u64) -> Report {
        let shop = Shop {
            orders: Vec::new(),
            items: Vec::new(),
        };
        let tally = Tally::new(&shop.orders);
        let time = Duration::from_millis(1_500);
        let mut report = Report::new(locked, &tally, &shop, &[], time, Vec::new());
        report.damage.lost_updates = lost_updates;
        report
    }

    #[test]
    fn the_verdict_depends_on_the_run() {
        assert!(
            report(false, 3)
                .verdict()
                .contains("3 of 0 confirmed reductions were lost")
        );
        assert!(
            report(false, 0)
                .verdict()
                .contains("nothing went wrong this time")
        );
        assert!(report(true, 0).verdict().contains("With the lock all 0"));
        assert!(report(true, 1).verdict().contains("a bug in distlock"));
    }

    #[test]
    fn one_is_singular() {
        for (number, one, said) in [
            (1, "order", "1 order"),
            (0, "order", "0 orders"),
            (2, "process", "2 processes"),
        ] {
            assert_eq!(count(number, one), said);
        }
    }

    #[test]
    fn the_table_has_a_column_per_run_and_a_line_per_casualty() {
        let mut locked = report(true, 0);
        locked.casualties.push(Casualty {
            pid: 42,
            orders: 8,
            delay: Duration::from_millis(2_310),
        });
        let text = Table(&[report(false, 3), locked]).to_string();
        let lost = text
            .lines()
            .find(|line| line.starts_with("lost updates"))
            .unwrap();
        assert_eq!(
            lost.split_whitespace().collect::<Vec<_>>(),
            ["lost", "updates", "3", "0"]
        );
        assert!(text.contains("Process 42 died with 8 orders"), "{text}");
        assert!(
            text.contains("2.31 s, within the bound of 3.25 s"),
            "{text}"
        );
        assert!(!text.contains("repeated calls"), "{text}");
    }
}
