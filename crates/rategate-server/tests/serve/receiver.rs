//! A receiver of spans for tests, which reads OTLP over HTTP, or fails to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

/// The behaviour of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverMode {
    /// Accepts requests.
    Takes,
    /// Answers with an error.
    Refuses,
    /// Reads requests, and never answers.
    IsSilent,
}

/// A receiver on its own port. Its thread ends with the process.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    calls: Arc<AtomicUsize>,
}

/// A span, with the attributes of its service.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) span: Span,
    pub(crate) of: Vec<KeyValue>,
    pub(crate) scope: String,
}

impl Receiver {
    pub(crate) fn start(mode: ReceiverMode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Self { port, received: Arc::default(), calls: Arc::default() };
        let theirs = own.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let own = theirs.clone();
                thread::spawn(move || own.serve_connection(stream.unwrap(), mode));
            }
        });
        own
    }

    /// Returns the same receiver at another port.
    pub(crate) fn at(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }

    /// Returns the table `[tracing]` for this receiver.
    pub(crate) fn table(&self, sample: &str) -> String {
        format!(
            "[tracing]\notlp = \"http://127.0.0.1:{}\"\nsample = \"{sample}\"\n\
             service = \"limits\"\n",
            self.port
        )
    }

    /// Returns the spans received so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the number of requests so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn serve_connection(&self, stream: TcpStream, mode: ReceiverMode) {
        let mut stream = BufReader::new(stream);
        let (mut line, mut length, mut has_type) = (String::new(), 0, false);
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
        loop {
            line.clear();
            stream.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("content-type", value)) => has_type = value == "application/x-protobuf",
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        assert!(has_type);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let status = match mode {
            ReceiverMode::Takes => {
                self.take(&body);
                "200 OK"
            }
            ReceiverMode::Refuses => "503 Service Unavailable",
            ReceiverMode::IsSilent => {
                // Until the client gives up.
                let _ = stream.read(&mut [0]);
                return;
            }
        };
        let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
    }

    fn take(&self, body: &[u8]) {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let mut received = self.received.lock().unwrap();
        for of_resource in request.resource_spans {
            let of = of_resource.resource.unwrap().attributes;
            for of_scope in of_resource.scope_spans {
                let scope = of_scope.scope.unwrap().name;
                let spans = of_scope.spans.into_iter();
                received.extend(spans.map(|span| Received {
                    span,
                    of: of.clone(),
                    scope: scope.clone(),
                }));
            }
        }
    }
}

impl Received {
    /// Returns an attribute as text: `-` if it is missing.
    pub(crate) fn attribute(&self, name: &str) -> String {
        value(&self.span.attributes, name)
    }
}

/// Returns the value of a name as text.
pub(crate) fn value(all: &[KeyValue], name: &str) -> String {
    let found = all.iter().find(|pair| pair.key == name);
    found.map_or_else(|| "-".to_owned(), |pair| text(pair.value.as_ref().unwrap()))
}

fn text(value: &AnyValue) -> String {
    match value.value.as_ref().unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(truth) => truth.to_string(),
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(all) => all.values.iter().map(text).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    }
}
