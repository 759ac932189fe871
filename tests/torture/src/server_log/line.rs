//! One line of MONITOR.

/// A command that the server executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// The server's time, in microseconds.
    pub(crate) wall_us: u64,
    /// It was called by a script.
    pub(crate) in_script: bool,
    pub(crate) words: Vec<String>,
}

impl Line {
    /// Reads `1700000000.000000 [0 127.0.0.1:1234] "GET" "a"`; in a script, `lua` stands for the address.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (time, rest) = line.split_once(" [")?;
        let (from, words) = rest.split_once("] ")?;
        let (seconds, micros) = time.split_once('.')?;
        let seconds: u64 = seconds.parse().ok()?;
        let micros: u64 = micros.parse().ok()?;
        Some(Line {
            wall_us: seconds * 1_000_000 + micros,
            in_script: from.ends_with(" lua"),
            words: quoted(words)?,
        })
    }
}

/// Words in double quotes, with the escapes of `sdscatrepr`.
fn quoted(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        rest = rest.strip_prefix('"')?;
        let mut word = Vec::new();
        let bytes = rest.as_bytes();
        let mut at = 0;
        loop {
            match *bytes.get(at)? {
                b'"' => break,
                b'\\' => {
                    at += 1;
                    match *bytes.get(at)? {
                        b'n' => word.push(b'\n'),
                        b'r' => word.push(b'\r'),
                        b't' => word.push(b'\t'),
                        b'a' => word.push(7),
                        b'b' => word.push(8),
                        b'x' => {
                            let digits = rest.get(at + 1..at + 3)?;
                            word.push(u8::from_str_radix(digits, 16).ok()?);
                            at += 2;
                        }
                        other => word.push(other),
                    }
                }
                other => word.push(other),
            }
            at += 1;
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
        rest = rest[at + 1..].trim_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_out_of_their_quotes() {
        let line = r#"1795261185.231510 [0 lua] "SET" "k" "a \"b\" \\ \r\n\x00 c" "" "PX" "500""#;
        let line = Line::parse(line).unwrap();
        assert_eq!(line.wall_us, 1_795_261_185_231_510);
        assert!(line.in_script);
        assert_eq!(
            line.words,
            ["SET", "k", "a \"b\" \\ \r\n\0 c", "", "PX", "500"]
        );
    }

    #[test]
    fn who_called_is_told_apart() {
        let line = Line::parse(r#"1.000002 [0 127.0.0.1:43866] "ping""#).unwrap();
        assert_eq!((line.wall_us, line.in_script), (1_000_002, false));
        for broken in ["OK", "", r#"1.2 [0 lua] "a"#, "1.2 [0 lua] a"] {
            assert_eq!(Line::parse(broken), None, "{broken:?}");
        }
    }
}
