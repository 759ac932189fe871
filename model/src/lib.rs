//! A model of the hand-off protocol.

mod calm;
mod config;
mod explore;
mod list;
mod protocol;
mod server;
mod show;
mod state;

pub use config::{Config, Faults, LONG, Rules, SHORT, Times};
pub use explore::{Claim, CounterExample, Report, explore, refute};
pub use list::List;
pub use protocol::Action;
pub use state::*;
