//! The command line, as a program against real servers.

mod kit;
mod losing;
mod running;
