//! The protocol: what is asked, what is believed, and when. Nothing here does I/O, awaits, or reads a clock.

pub(crate) mod timing;
pub(crate) mod trouble;
pub(crate) mod words;
