//! Traces: the instants of the lines of a log, or of a file with one instant on each line.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};

use crate::input::{Lines, MAX_LINE, Next, plain};
use crate::log::{Dates, instant};

/// The maximum number of bytes of a line that an error quotes.
const MAX_QUOTE: usize = 60;

/// The instants of a trace, in nanoseconds, read one by one in bounded memory.
///
/// A line is one of an access log, in any format that an [`Analysis`](crate::Analysis) reads, or
/// an instant alone: a date as in `2000-10-10T20:55:36.25Z`, or a number. A number is of seconds,
/// which may have decimals, or of Unix time in a finer unit if it is 10^11 or more. Blank lines are
/// skipped. The input is plain or gzip. The iterator ends with the first error.
///
/// ```
/// use rategate_analyze::TraceReader;
///
/// let file = "0.5\n\n2\n1\n3\n";
/// let mut trace = TraceReader::new(file.as_bytes())?;
/// assert_eq!(trace.next().transpose()?, Some(500_000_000));
/// assert_eq!(trace.next().transpose()?, Some(2_000_000_000));
/// assert_eq!(trace.next().transpose().map_err(|error| error.line), Err(4));
/// assert!(trace.next().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TraceReader<'a> {
    /// Absent once the trace is over.
    input: Option<Box<dyn Read + 'a>>,
    lines: Lines,
    dates: Dates,
    /// The number of lines so far.
    line: u64,
    newest_ns: u64,
}

/// The reason why a trace cannot be read further, and where.
#[derive(Debug)]
pub struct TraceError {
    /// The line, counted from 1.
    pub line: u64,
    /// The beginning of the line.
    pub text: String,
    /// The fault there.
    pub fault: TraceFault,
}

/// A fault of a trace.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceFault {
    /// The line has no instant.
    NoInstant,
    /// The line is longer than the maximum.
    TooLong,
    /// The instant is earlier than the one before it.
    Backwards,
    /// The line cannot be read.
    Io(io::Error),
}

impl<'a> TraceReader<'a> {
    /// Opens a trace.
    ///
    /// # Errors
    ///
    /// Those of reading the first bytes of the input.
    pub fn new(input: impl Read + 'a) -> io::Result<Self> {
        let input = Some(plain(input)?);
        Ok(Self { input, lines: Lines::new(), dates: Dates::default(), line: 0, newest_ns: 0 })
    }
}

impl Iterator for TraceReader<'_> {
    type Item = Result<u64, TraceError>;

    fn next(&mut self) -> Option<Result<u64, TraceError>> {
        let input = self.input.as_mut()?;
        let mut is_read = false;
        let (fault, text) = loop {
            let next = if is_read { self.lines.last() } else { self.lines.next() };
            let text = match next {
                Next::Line(text) => text,
                Next::TooLong => break (TraceFault::TooLong, String::new()),
                Next::Dry if is_read => {
                    self.input = None;
                    return None;
                }
                Next::Dry => {
                    match self.lines.fill(input) {
                        Ok(count) => is_read = count == 0,
                        Err(error) => break (TraceFault::Io(error), String::new()),
                    }
                    continue;
                }
            };
            let text = text.trim_ascii();
            if text.is_empty() {
                self.line = self.line.saturating_add(1);
                continue;
            }
            match instant(&mut self.dates, text) {
                Ok(at_ns) if at_ns >= self.newest_ns => {
                    self.line = self.line.saturating_add(1);
                    self.newest_ns = at_ns;
                    return Some(Ok(at_ns));
                }
                Ok(_) => break (TraceFault::Backwards, quote(text)),
                Err(_) => break (TraceFault::NoInstant, quote(text)),
            }
        };
        self.input = None;
        Some(Err(TraceError { line: self.line.saturating_add(1), text, fault }))
    }
}

fn quote(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..MAX_QUOTE).unwrap_or(text)).into_owned()
}

impl fmt::Debug for TraceReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader").field("line", &self.line).finish_non_exhaustive()
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if !self.text.is_empty() {
            write!(f, " \"{}\"", self.text.escape_debug())?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl fmt::Display for TraceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInstant => f.write_str(
                "no instant; it is a line of an access log, a date as in 2000-10-10T20:55:36Z, or \
                 a number of seconds as in 12.5",
            ),
            Self::TooLong => write!(f, "longer than {MAX_LINE} bytes; a line has one instant"),
            Self::Backwards => f.write_str(
                "earlier than the line before it; sort the lines of a trace by their instants",
            ),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for TraceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            TraceFault::Io(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::{MAX_LINE, TraceError, TraceFault, TraceReader};

    fn instants(text: &[u8]) -> Vec<u64> {
        TraceReader::new(text).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Returns the instants before the first error, and the error.
    fn torn(text: &[u8]) -> (Vec<u64>, TraceError) {
        let mut trace = TraceReader::new(text).unwrap();
        let mut read = Vec::new();
        let error = loop {
            match trace.next().unwrap() {
                Ok(at_ns) => read.push(at_ns),
                Err(error) => break error,
            }
        };
        assert!(trace.next().is_none(), "the first error ends it");
        (read, error)
    }

    #[test]
    fn each_form_of_a_line_has_an_instant() {
        let text = br#"10.0.0.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326

 [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1
{"nested": {"time": 1}, "time": "2000-10-10T20:55:37.5Z"}
{"ts": 971211338}
  2000-10-10T20:55:39Z
971211340.25
971211341000
971211342000000"#;
        let ms = [36_000, 36_000, 37_500, 38_000, 39_000, 40_250, 41_000, 42_000];
        let expected = ms.map(|ms| 971_211_300_000_000_000 + ms * 1_000_000);
        assert_eq!(instants(text), expected);
        assert_eq!(instants(b"0\r\n0.000000001\r\n\r\n12.5"), [0, 1, 12_500_000_000]);
        assert!(instants(b"").is_empty() && instants(b"\n \n\r\n").is_empty());
    }

    #[test]
    fn an_error_says_where_and_what() {
        let long = format!("1\n{}\n2\n", "x".repeat(MAX_LINE + 1));
        for (text, before, message) in [
            ("1\n\nsoon\n3\n", 1, "line 3 \"soon\": no instant; it is a line of an access log, "),
            ("{\"ts\": 1}\n{\"ts\": 1", 1, "line 2 \"{\\\"ts\\\": 1\": no instant; "),
            ("-1\n", 0, "line 1 \"-1\": no instant; "),
            ("h - - [yesterday] \"GET /\" 200 1\n", 0, "line 1 \"h - - [yesterday] "),
            ("1\n2\n1.5\n", 2, "line 3 \"1.5\": earlier than the line before it; sort "),
            (long.as_str(), 1, "line 2: longer than 65536 bytes; "),
        ] {
            let (read, error) = torn(text.as_bytes());
            assert_eq!(read.len(), before, "{error}");
            assert!(error.to_string().starts_with(message), "{error}");
        }
        let (_, error) = torn(format!("{}\n", "x".repeat(1_000)).as_bytes());
        assert_eq!(error.text, "x".repeat(60));
    }

    #[test]
    fn a_trace_may_be_gzip() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for second in 0..50_000 {
            writeln!(gzip, "{second}").unwrap();
        }
        let whole = gzip.finish().unwrap();
        assert_eq!(instants(&whole).len(), 50_000);
        let (read, error) = torn(&whole[..whole.len() / 2]);
        assert!(matches!(error.fault, TraceFault::Io(_)), "{error}");
        assert_eq!(error.line, u64::try_from(read.len()).unwrap() + 1);
    }

    /// A line each, for ever.
    struct Endless;

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let lines = buffer.chunks_exact_mut(4).map(|line| line.copy_from_slice(b"7.5\n"));
            Ok(4 * lines.count())
        }
    }

    #[test]
    fn a_trace_has_no_length() {
        let mut trace = TraceReader::new(Endless).unwrap();
        assert!(trace.by_ref().take(1_000_000).all(|at_ns| at_ns.unwrap() == 7_500_000_000));
        assert_eq!(trace.line, 1_000_000);
    }
}
