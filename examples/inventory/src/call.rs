//! What one call of the service did, and when: the bars of the chart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::orders::Order;
use crate::stock::Level;
use crate::tally::WAITED;

/// How the body of a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It wrote this to the stock.
    Wrote(Level),
    /// It had nothing to write.
    WroteNothing,
    /// The fence refused its write.
    Refused,
    /// It was dropped, for its lock was lost, or the stock did not answer.
    Stopped,
}

/// A call whose body began. Times are those of [`crate::clock`], in whole microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) order: Order,
    /// The number of the instance or process.
    pub(crate) worker: usize,
    /// When the lock was asked for.
    pub(crate) called: Duration,
    /// When the body began, under the lock if there is one.
    pub(crate) began: Duration,
    /// When the body ended; the lock is released after that.
    pub(crate) ended: Duration,
    pub(crate) end: End,
}

impl Call {
    /// Whether it waited for another; what is shorter is the cost of the call.
    pub(crate) fn has_waited(&self) -> bool {
        self.began - self.called > WAITED
    }

    /// What it wrote to the stock, if it did.
    pub(crate) fn wrote(&self) -> Option<Level> {
        match self.end {
            End::Wrote(level) => Some(level),
            End::WroteNothing | End::Refused | End::Stopped => None,
        }
    }

    /// What it had read before it wrote.
    pub(crate) fn read(&self) -> Option<Level> {
        self.wrote().map(|wrote| Level {
            quantity: wrote.quantity + self.order.quantity,
            updates: wrote.updates.saturating_sub(1),
        })
    }
}

/// How a worker process tells its parent.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.order, self.worker)?;
        for time in [self.called, self.began, self.ended] {
            write!(f, " {}", time.as_micros())?;
        }
        match self.end {
            End::Wrote(Level { quantity, updates }) => write!(f, " wrote {quantity} {updates}"),
            End::WroteNothing => write!(f, " nothing"),
            End::Refused => write!(f, " refused"),
            End::Stopped => write!(f, " stopped"),
        }
    }
}

impl FromStr for Call {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [order, worker, called, began, ended, end @ ..] = &words[..] else {
            bail!("{} words", words.len());
        };
        let time = |word: &str| word.parse().map(Duration::from_micros);
        let end = match end {
            ["wrote", quantity, updates] => End::Wrote(Level {
                quantity: quantity.parse()?,
                updates: updates.parse()?,
            }),
            ["nothing"] => End::WroteNothing,
            ["refused"] => End::Refused,
            ["stopped"] => End::Stopped,
            _ => bail!("no end"),
        };
        Ok(Call {
            order: order.parse()?,
            worker: worker.parse()?,
            called: time(called)?,
            began: time(began)?,
            ended: time(ended)?,
            end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_back_as_it_was_written() {
        let level = Level {
            quantity: 40,
            updates: 3,
        };
        let ends = [
            End::Wrote(level),
            End::WroteNothing,
            End::Refused,
            End::Stopped,
        ];
        for end in ends {
            let call = Call {
                order: "7,3,2".parse().unwrap(),
                worker: 1,
                called: Duration::from_micros(5),
                began: Duration::from_micros(1_000_007),
                ended: Duration::from_micros(1_002_000),
                end,
            };
            assert_eq!(call.to_string().parse::<Call>().unwrap(), call);
            let read = call.read().map(|read| (read.quantity, read.updates));
            assert_eq!(read, call.wrote().map(|_| (42, 2)));
        }
        for line in [
            "",
            "7,3,2",
            "7,3,2 1 2 3",
            "7,3,2 1 2 3 4",
            "7,3,2 1 2 3 4 wrote 5",
            "7,3,2 1 2 3 4 lost",
            "7 1 2 3 4 nothing",
        ] {
            assert!(line.parse::<Call>().is_err(), "{line}");
        }
    }
}
