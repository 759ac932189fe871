//! The table of both runs, and the verdict.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::ledger::{Call, Kill, Ledger};
use crate::orders::Shop;
use crate::service::{GRACE, LEASE};

/// A call that began later than this has waited. A shorter time is the cost of the call.
const MIN_WAIT: Duration = Duration::from_millis(1);

const LABEL: usize = 28;
const COLUMN: usize = 22;

/// The result of one run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) locked: bool,
    pub(crate) orders: usize,
    pub(crate) fulfilled: usize,
    pub(crate) rejected: usize,
    /// Number of items of which more pieces were confirmed than existed.
    pub(crate) oversold: usize,
    /// Number of confirmed orders that the stock does not show.
    pub(crate) lost_updates: usize,
    /// Number of pieces that were confirmed and are still in stock. Negative if the stock was
    /// reduced for an order that was not confirmed.
    lost_pieces: i64,
    /// The time at which the first call began to wait.
    pub(crate) start: Duration,
    /// The time from `start` to the end of the last call.
    pub(crate) time: Duration,
    /// The waiting times of the calls that waited for the lock, in ascending order.
    waits: Vec<Duration>,
    pub(crate) kill: Option<(Kill, Duration)>,
    /// The calls for each item in the order in which they began, with the most wanted item first.
    pub(crate) items: Vec<(u32, Vec<Call>)>,
}

impl Report {
    pub(crate) fn new(locked: bool, shop: &Shop, ledger: &Ledger) -> Self {
        let mut confirmed = BTreeMap::<u32, i64>::new();
        for order in &ledger.confirmed {
            *confirmed.entry(order.item_id).or_default() += i64::from(order.quantity);
        }
        let stock = ledger.stock();
        let (mut oversold, mut lost_pieces) = (0, 0);
        for (item, initial) in &shop.stock {
            let confirmed = confirmed.get(item).copied().unwrap_or_default();
            oversold += usize::from(confirmed > i64::from(*initial));
            lost_pieces += confirmed - (i64::from(*initial) - i64::from(stock[item]));
        }

        let calls = ledger.calls();
        let lost_updates = calls.iter().filter(|call| call.is_lost).count();
        let start = calls.iter().map(|call| call.called).min();
        let start = start.unwrap_or_default();
        let end = calls.iter().map(|call| call.ended).max();
        let waits = calls.iter().map(|call| call.began - call.called);
        let mut waits: Vec<_> = waits.filter(|wait| *wait > MIN_WAIT).collect();
        waits.sort_unstable();
        let kill = ledger.kill.map(|kill| {
            let began = calls.iter().filter(|call| call.order.item_id == kill.item);
            let began = began.map(|call| call.began);
            let next = began.filter(|began| *began > kill.at).min();
            (kill, next.unwrap_or(kill.at) - kill.at)
        });
        Report {
            locked,
            orders: ledger.orders,
            fulfilled: ledger.confirmed.len(),
            rejected: ledger.rejected,
            oversold,
            lost_updates,
            lost_pieces,
            start,
            time: end.unwrap_or(start) - start,
            waits,
            kill,
            items: by_item(calls),
        }
    }

    /// Returns true if the stock does not show what was confirmed.
    pub(crate) fn is_wrong(&self) -> bool {
        self.oversold > 0 || self.lost_updates > 0 || self.lost_pieces != 0
    }

    fn verdict(&self) -> String {
        let (lost, fulfilled, oversold) = (self.lost_updates, self.fulfilled, self.oversold);
        let damage =
            format!("{lost} of {fulfilled} updates were lost, and {oversold} items oversold");
        match (self.locked, self.is_wrong()) {
            (true, false) => format!("With the lock all {fulfilled} updates are in the stock."),
            (true, true) => format!("WITH THE LOCK {damage}: this is a bug in distlock."),
            (false, true) => format!("Without the lock {damage}."),
            (false, false) => {
                "Without the lock no update was lost this time: run more orders.".into()
            }
        }
    }
}

fn by_item(calls: Vec<Call>) -> Vec<(u32, Vec<Call>)> {
    let mut items = BTreeMap::<u32, Vec<Call>>::new();
    for call in calls {
        items.entry(call.order.item_id).or_default().push(call);
    }
    let mut items: Vec<_> = items.into_iter().collect();
    items.sort_by_key(|(_, calls)| Reverse(calls.len()));
    items
}

/// All runs side by side.
#[derive(Debug)]
pub(crate) struct Table<'a>(pub(crate) &'a [Report]);

type Cell = fn(&Report) -> String;

const ROWS: [(&str, Cell); 9] = [
    ("orders", |r| r.orders.to_string()),
    ("fulfilled", |r| r.fulfilled.to_string()),
    ("rejected (out of stock)", |r| r.rejected.to_string()),
    ("oversold items", |r| r.oversold.to_string()),
    ("lost updates", |r| r.lost_updates.to_string()),
    ("lost pieces", |r| r.lost_pieces.to_string()),
    ("time", |r| short(r.time)),
    ("waits (calls above 1 ms)", |r| r.waits.len().to_string()),
    ("wait, median / p99", |r| {
        let percentile = |n| r.waits.get(r.waits.len() * n / 100).copied();
        let [median, p99] = [50, 99].map(|n| short(percentile(n).unwrap_or_default()));
        format!("{median} / {p99}")
    }),
];

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |label: &str, cell: Cell| {
            write!(f, "{label:<LABEL$}")?;
            for report in self.0 {
                write!(f, "{:>COLUMN$}", cell(report))?;
            }
            writeln!(f)
        };
        line("", |r| title(r.locked).into())?;
        for (label, cell) in ROWS {
            line(label, cell)?;
        }
        writeln!(f)?;
        for (Kill { pid, item, .. }, delay) in self.0.iter().filter_map(|report| report.kill) {
            writeln!(
                f,
                "Process {pid} was killed while it held the lock of item {item}. The next holder had \
                 it {} later (lease and grace: {}).",
                short(delay),
                short(LEASE + GRACE),
            )?;
        }
        for report in self.0 {
            writeln!(f, "{}", report.verdict())?;
        }
        Ok(())
    }
}

pub(crate) fn title(locked: bool) -> &'static str {
    if locked { "with lock" } else { "without lock" }
}

/// Formats a duration with its unit.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1_000.0)
    }
}
