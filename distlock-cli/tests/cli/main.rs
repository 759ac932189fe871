//! The command line, as a program against real servers.

mod cron;
mod doctor;
mod documented;
mod first_lock;
mod kinds;
mod losing;
mod once;
mod running;
mod seeing;
mod support;
mod terminal;
mod texts;
mod unlocking;
mod watching;
