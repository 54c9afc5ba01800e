//! Redis' protocol on a connection. Its retry times are in milliseconds: finer ones come from the
//! engine.

use std::sync::{Arc, Mutex};

use rategate_server::engine::Verb;
use rategate_server::net::{Access, Drainer, Limits, Peer, Protocol};
use rategate_server::protocol::resp::Bounds;
use rategate_server::protocol::resp::Resp;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::runtime::{Builder, Runtime};

use crate::scenarios::carrier::{Carrier, CarrierAnswer, ItemAnswer, TestEngine};
use crate::scenarios::engine::Directly;

pub(crate) struct OverResp {
    engine: Directly,
    end: Mutex<(Runtime, BufReader<DuplexStream>)>,
    _drainer: Drainer,
}

impl OverResp {
    pub(crate) fn new(engine: TestEngine) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let (access, bounds, limits) = (Access::default(), Bounds::default(), Limits::default());
        let resp = Resp::new(engine.clone(), access, bounds, limits);
        let drainer = Drainer::new();
        let peer = Peer {
            address: None,
            identity: None,
            token_required: false,
            attempts: rategate_server::net::Attempts::default(),
        };
        runtime.spawn(resp.serve(far, peer, drainer.drain()));
        let end = Mutex::new((runtime, BufReader::new(near)));
        Self { engine: Directly(engine), end, _drainer: drainer }
    }

    /// Returns the names and values of a map reply.
    fn call(&self, words: &[&[u8]]) -> Vec<String> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        let (runtime, end) = &mut *self.end.lock().unwrap();
        runtime.block_on(async {
            end.get_mut().write_all(&command).await.unwrap();
            let mut line = String::new();
            end.read_line(&mut line).await.unwrap();
            let count: usize = line.trim_end()[1..].parse().unwrap_or_else(|_| panic!("{line}"));
            let mut fields = Vec::new();
            for _ in 0..count {
                line.clear();
                end.read_line(&mut line).await.unwrap();
                let rest = line.trim_end()[1..].to_owned();
                if line.starts_with('$') && rest != "-1" {
                    let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                    end.read_exact(&mut text).await.unwrap();
                    text.truncate(text.len() - 2);
                    fields.push(String::from_utf8(text).unwrap());
                } else {
                    fields.push(rest);
                }
            }
            fields
        })
    }
}

impl Carrier for OverResp {
    const SEVERAL: bool = false;

    fn ask(&self, verb: Verb, rules: &[Arc<str>], value: &[u8], permits: u64) -> CarrierAnswer {
        let [rule] = rules else { unreachable!("a call names one rule") };
        let peeked = self.engine.ask(Verb::Peek, rules, value, permits);
        let verb: &[u8] = match verb {
            Verb::Take => b"RATEGATE.CHECK",
            Verb::Peek => b"RATEGATE.PEEK",
            Verb::Charge => b"RATEGATE.CHARGE",
            other => unreachable!("{other:?} is not used by the scenarios"),
        };
        let fields = self.call(&[verb, rule.as_bytes(), permits.to_string().as_bytes(), value]);
        let field = |name: &str| {
            let at = fields.iter().position(|word| word == name).unwrap();
            fields[at + 1].parse::<i64>().unwrap()
        };
        let is_over = field("allowed") == 0;
        let retry_after_ns = peeked.results[0].retry_after_ns.filter(|_| is_over);
        let in_ms = retry_after_ns.map_or(-1, |ns| ns.div_ceil(1_000_000).cast_signed());
        assert_eq!(field("retry_after_ms"), in_ms, "{fields:?}");
        let (remaining, debt) = (field("remaining") as u64, field("debt") as u64);
        CarrierAnswer {
            allowed: !is_over,
            results: vec![ItemAnswer { is_over, retry_after_ns, remaining, debt }],
        }
    }
}
