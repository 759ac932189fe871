//! The command line, as a program against real servers.

mod doctor;
mod documented;
mod kit;
mod losing;
mod running;
mod seeing;
mod taken;
mod terminal;
mod told;
mod unlocking;
mod watching;
