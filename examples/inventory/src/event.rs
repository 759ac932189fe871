//! What a service says about its work: to the tally in this process, or as a line on a pipe.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::call::Call;

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The stock was reduced, and the caller told so.
    Fulfilled,
    /// There was not enough left.
    Rejected,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Fulfilled => "fulfilled",
            Outcome::Rejected => "rejected",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Outcome::Fulfilled, Outcome::Rejected]
            .into_iter()
            .find(|outcome| outcome.name() == name)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The worker is connected and takes orders.
    Ready,
    /// The body of an order began, this long after the call.
    Started {
        order: u64,
        waited: Duration,
        token: Option<u64>,
    },
    /// The body of an order ended.
    Worked(Call),
    /// An order is done.
    Finished { order: u64, outcome: Outcome },
    /// A call failed in a way that allows it to be repeated.
    Repeated { order: u64, why: String },
    /// The service cannot go on.
    Failed { message: String },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Ready => write!(f, "ready"),
            Event::Started {
                order,
                waited,
                token,
            } => {
                let token = token.unwrap_or(0);
                write!(f, "started {order} {} {token}", waited.as_micros())
            }
            Event::Worked(call) => write!(f, "worked {call}"),
            Event::Finished { order, outcome } => write!(f, "finished {order} {}", outcome.name()),
            Event::Repeated { order, why } => write!(f, "repeated {order} {}", one_line(why)),
            Event::Failed { message } => write!(f, "failed {}", one_line(message)),
        }
    }
}

/// A line of a worker that is not one.
#[derive(Debug, thiserror::Error)]
#[error("a worker said `{0}`, which means nothing")]
pub(crate) struct UnknownEvent(String);

impl FromStr for Event {
    type Err = UnknownEvent;

    fn from_str(line: &str) -> Result<Self, UnknownEvent> {
        parse(line).ok_or_else(|| UnknownEvent(line.to_owned()))
    }
}

fn parse(line: &str) -> Option<Event> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "ready" => Some(Event::Ready),
        "started" => {
            let mut numbers = rest.split(' ').map(|number| number.parse::<u64>().ok());
            Some(Event::Started {
                order: numbers.next()??,
                waited: Duration::from_micros(numbers.next()??),
                token: numbers.next()?.map(|token| (token > 0).then_some(token))?,
            })
        }
        "worked" => Some(Event::Worked(rest.parse().ok()?)),
        "finished" => {
            let (order, outcome) = rest.split_once(' ')?;
            Some(Event::Finished {
                order: order.parse().ok()?,
                outcome: Outcome::from_name(outcome)?,
            })
        }
        "repeated" => {
            let (order, why) = rest.split_once(' ')?;
            Some(Event::Repeated {
                order: order.parse().ok()?,
                why: why.to_owned(),
            })
        }
        "failed" => Some(Event::Failed {
            message: rest.to_owned(),
        }),
        _ => None,
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let events = [
            Event::Ready,
            Event::Started {
                order: 7,
                waited: Duration::from_micros(1_234),
                token: Some(u64::MAX),
            },
            Event::Started {
                order: 7,
                waited: Duration::ZERO,
                token: None,
            },
            Event::Worked("7,3,2 1 10 20 30 wrote 40 5".parse().unwrap()),
            Event::Finished {
                order: 8,
                outcome: Outcome::Rejected,
            },
            Event::Repeated {
                order: 8,
                why: "lock `x` was lost".into(),
            },
            Event::Failed {
                message: "the server is gone".into(),
            },
        ];
        for event in events {
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn a_message_stays_one_line() {
        let event = Event::Failed {
            message: "a\nb".into(),
        };
        assert_eq!(event.to_string(), "failed a b");
    }

    #[test]
    fn half_a_line_is_not_an_event() {
        for line in [
            "",
            "finished 7",
            "finished 7 ful",
            "started 7 12",
            "started x 1 2",
            "worked 7,3,2 1 10 20",
            "hello",
        ] {
            let error = line.parse::<Event>().unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
