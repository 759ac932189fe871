//! Lines over TCP, between the server and one task of a worker.

use std::io;
use std::str::FromStr;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Connection {
            lines: BufReader::new(reader).lines(),
            writer,
        })
    }

    pub(crate) async fn send(&mut self, line: &str) -> io::Result<()> {
        self.writer.write_all(format!("{line}\n").as_bytes()).await
    }

    /// Returns the next line, or `None` once the other end has closed the connection. Cancel safe.
    pub(crate) async fn receive(&mut self) -> io::Result<Option<String>> {
        self.lines.next_line().await
    }
}

/// Parses a word of a line.
pub(crate) fn parse<T: FromStr>(word: &str) -> io::Result<T> {
    word.parse().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{word}` is not a number"),
        )
    })
}
