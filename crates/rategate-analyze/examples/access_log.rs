//! Writes a synthetic access log in the combined format or as JSON lines, for trying
//! `rategate analyze`.
//!
//! The first argument is the size in MB (1), the second the seed (1), and `json` as the third
//! writes JSON lines. Equal arguments give equal logs. Twenty of a hundred thousand callers send a
//! tenth of the lines. A line in a hundred is dated back by up to two seconds.
//!
//! ```console
//! $ cargo run --release --package rategate-analyze --example access_log -- 1000 > access.log
//! ```

use std::env;
use std::error::Error;
use std::io::{self, BufWriter, Write as _};

const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let megabytes: u64 = arguments.next().unwrap_or_else(|| "1".to_owned()).parse()?;
    let seed: u64 = arguments.next().unwrap_or_else(|| "1".to_owned()).parse()?;
    let is_json = arguments.next().is_some_and(|form| form == "json");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut random = |below: u64| random.u64(..below);
    let mut output = BufWriter::new(io::stdout().lock());
    let (mut left, mut second) = (megabytes.saturating_mul(1_000_000), 0_u64);
    while left > 0 {
        // About 400 lines a second.
        second = second.saturating_add(u64::from(random(400) == 0));
        let late = if random(100) == 0 { random(3) } else { 0 };
        let at = second.saturating_sub(late);
        let caller =
            if random(10) == 0 { random(20) } else { 20_u64.saturating_add(random(100_000)) };
        let [a, b, c] = [caller >> 16, (caller >> 8) & 255, caller & 255];
        let day = at.div_euclid(86_400).saturating_add(1);
        let (hour, minute, of_minute) = (
            at.div_euclid(3_600).rem_euclid(24),
            at.div_euclid(60).rem_euclid(60),
            at.rem_euclid(60),
        );
        let (page, bytes, status) = (random(5_000), random(60_000), [200, 200, 200, 304, 404, 500]);
        let status = status.get(usize::try_from(random(6))?).copied().unwrap_or(200);
        let line = if is_json {
            format!(
                "{{\"time\":\"2026-01-{day:02}T{hour:02}:{minute:02}:{of_minute:02}Z\",\
                 \"remote_addr\":\"10.{a}.{b}.{c}\",\
                 \"method\":\"GET\",\"path\":\"/page/{page}\",\"status\":{status},\
                 \"bytes\":{bytes},\"user_agent\":\"{AGENT}\"}}\n"
            )
        } else {
            format!(
                "10.{a}.{b}.{c} - - [{day:02}/Jan/2026:{hour:02}:{minute:02}:{of_minute:02} +0000] \
                 \"GET /page/{page}?from=feed HTTP/1.1\" {status} {bytes} \
                 \"https://www.example.org/start\" \"{AGENT}\"\n"
            )
        };
        output.write_all(line.as_bytes())?;
        left = left.saturating_sub(u64::try_from(line.len())?);
    }
    output.flush()?;
    Ok(())
}
