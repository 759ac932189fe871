//! What one call of the service did, and when: the bars of the chart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::orders::Order;
use crate::stock::Level;
use crate::tally::WAITED;

/// A call whose body came to its end. Times are those of [`crate::clock`], in whole microseconds.
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
    /// What it wrote to the stock, if it did.
    pub(crate) wrote: Option<Level>,
}

impl Call {
    /// Whether it waited for another; what is shorter is the cost of the call.
    pub(crate) fn has_waited(&self) -> bool {
        self.began - self.called > WAITED
    }

    /// What it had read before it wrote.
    pub(crate) fn read(&self) -> Option<Level> {
        self.wrote.map(|wrote| Level {
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
        match self.wrote {
            Some(Level { quantity, updates }) => write!(f, " {quantity} {updates}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Call {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (order, numbers) = text.split_once(' ').context("no numbers")?;
        let numbers = numbers.split(' ').map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u64>, _>>()?;
        let (worker, times, wrote) = match numbers[..] {
            [worker, called, began, ended] => (worker, [called, began, ended], None),
            [worker, called, began, ended, quantity, updates] => {
                let quantity = u32::try_from(quantity)?;
                let wrote = Some(Level { quantity, updates });
                (worker, [called, began, ended], wrote)
            }
            _ => bail!("{} numbers", numbers.len()),
        };
        let [called, began, ended] = times.map(Duration::from_micros);
        Ok(Call {
            order: order.parse()?,
            worker: usize::try_from(worker)?,
            called,
            began,
            ended,
            wrote,
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
        for wrote in [None, Some(level)] {
            let call = Call {
                order: "7,3,2".parse().unwrap(),
                worker: 1,
                called: Duration::from_micros(5),
                began: Duration::from_micros(1_000_007),
                ended: Duration::from_micros(1_002_000),
                wrote,
            };
            assert_eq!(call.to_string().parse::<Call>().unwrap(), call);
            let read = call.read().map(|read| (read.quantity, read.updates));
            assert_eq!(read, wrote.map(|_| (42, 2)));
        }
        for line in ["", "7,3,2", "7,3,2 1 2 3", "7,3,2 1 2 3 4 5", "7 1 2 3 4"] {
            assert!(line.parse::<Call>().is_err(), "{line}");
        }
    }
}
