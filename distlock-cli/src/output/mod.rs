//! The output to stdout.

use std::io::{self, ErrorKind, Write as _};

use serde_json::Value;

pub(crate) mod lock;
pub(crate) mod table;
pub(crate) mod time;

use crate::cli::Global;
use crate::exit::{FAILED, Failure};

/// Writes bytes. A reader such as `head` may close the pipe when it has seen enough. That is no
/// error, so the process ends.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written
            .map_err(|error| Failure::new(FAILED, format!("cannot write to stdout: {error}"))),
    }
}

/// Writes the result of a command, in the requested format.
pub(crate) fn show(
    global: &Global,
    object: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if global.json {
        json(&object())
    } else {
        write(text().as_bytes())
    }
}

/// Writes an object on its own line.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    write(format!("{value}\n").as_bytes())
}
