//! Reflection for tools such as `grpcurl`: `grpc.reflection.v1`, and `v1alpha` with equal
//! messages.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::BytesMut;

use rategate_protocol::grpc::{Code, Status, prefixed};
use rategate_protocol::protobuf::{
    Malformed, Reader, bytes_length, integer_length, put_bytes, put_head, put_integer,
};

/// The files that describe the services, as a `FileDescriptorSet` without comments: those of
/// Envoy's and Kuadrant's services with all imports, of health and of reflection.
const FILES: &[u8] = include_bytes!("services.bin");

/// The codes `NOT_FOUND` and `UNIMPLEMENTED`.
const NOT_FOUND: u64 = 5;
const UNIMPLEMENTED: u64 = 12;

/// The request of a reflection message.
#[derive(Clone, Copy, Debug)]
enum ReflectionRequest<'a> {
    File(&'a str),
    Symbol(&'a str),
    Services,
    Extensions,
    Nothing,
}

/// The files, indexed by name and by symbol.
#[derive(Debug, Default)]
struct Index {
    files: HashMap<&'static str, &'static [u8]>,
    /// The files by the full names of their symbols.
    symbols: HashMap<String, &'static [u8]>,
    services: Vec<String>,
}

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Message,
    Service,
    /// A descriptor that declares nothing that is indexed: that of a field, a oneof, an
    /// enumeration, an extension or a method.
    Leaf,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| Index::new(FILES).unwrap_or_default());

/// Answers one message of a call.
pub(super) fn answer(message: &[u8], out: &mut BytesMut) -> Result<(), Status> {
    let (host, question) = read(message).map_err(|Malformed(why)| {
        Status::new(Code::InvalidArgument, format!("the request is malformed: {why}"))
    })?;
    let mut body = BytesMut::new();
    if !host.is_empty() {
        put_bytes(&mut body, 1, host.as_bytes());
    }
    put_bytes(&mut body, 2, message);
    match question {
        ReflectionRequest::File(name) => put_file(&mut body, INDEX.files.get(name).copied(), name),
        ReflectionRequest::Symbol(name) => {
            put_file(&mut body, INDEX.symbols.get(name).copied(), name);
        }
        ReflectionRequest::Services => put_services(&mut body),
        ReflectionRequest::Extensions => put_error(&mut body, NOT_FOUND, "there are no extensions"),
        ReflectionRequest::Nothing => {
            put_error(&mut body, UNIMPLEMENTED, "the request type is not supported");
        }
    }
    prefixed(out, |out| out.extend_from_slice(&body));
    Ok(())
}

fn read(message: &[u8]) -> Result<(&str, ReflectionRequest<'_>), Malformed> {
    let (mut host, mut question) = ("", ReflectionRequest::Nothing);
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => host = value.text()?,
            3 => question = ReflectionRequest::File(value.text()?),
            4 => question = ReflectionRequest::Symbol(value.text()?),
            5 | 6 => question = ReflectionRequest::Extensions,
            7 => question = ReflectionRequest::Services,
            _ => {}
        }
    }
    Ok((host, question))
}

fn put_file(body: &mut BytesMut, file: Option<&[u8]>, name: &str) {
    match file {
        Some(file) => {
            put_head(body, 4, bytes_length(file.len()));
            put_bytes(body, 1, file);
        }
        None => put_error(body, NOT_FOUND, &format!("`{name}` is not declared")),
    }
}

fn put_services(body: &mut BytesMut) {
    let services = &INDEX.services;
    let length = services.iter().map(|name| bytes_length(bytes_length(name.len())));
    put_head(body, 6, length.fold(0, usize::saturating_add));
    for name in services {
        put_head(body, 1, bytes_length(name.len()));
        put_bytes(body, 1, name.as_bytes());
    }
}

fn put_error(body: &mut BytesMut, code: u64, message: &str) {
    put_head(body, 7, integer_length(code).saturating_add(bytes_length(message.len())));
    put_integer(body, 1, code);
    put_bytes(body, 2, message.as_bytes());
}

impl Index {
    fn new(set: &'static [u8]) -> Result<Self, Malformed> {
        let mut index = Self::default();
        let mut files = Reader::new(set);
        while let Some((_, file)) = files.field()? {
            index.file(file.bytes()?)?;
        }
        index.services.sort();
        Ok(index)
    }

    fn file(&mut self, file: &'static [u8]) -> Result<(), Malformed> {
        let mut package = "";
        let mut fields = Reader::new(file);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => drop(self.files.insert(value.text()?, file)),
                2 => package = value.text()?,
                _ => {}
            }
        }
        self.declarations(Kind::File, file, package, file)
    }

    /// Indexes the declarations in a descriptor, whose full names begin with `within`.
    fn declarations(
        &mut self,
        kind: Kind,
        file: &'static [u8],
        within: &str,
        descriptor: &'static [u8],
    ) -> Result<(), Malformed> {
        let mut fields = Reader::new(descriptor);
        while let Some((number, value)) = fields.field()? {
            let Some(kind) = kind.declares(number) else { continue };
            let declared = value.bytes()?;
            let name = full_name(within, declared)?;
            self.declarations(kind, file, &name, declared)?;
            if kind == Kind::Service {
                self.services.push(name.clone());
            }
            self.symbols.insert(name, file);
        }
        Ok(())
    }
}

impl Kind {
    /// Returns the kind of the declarations that the field with this number holds, if it does.
    const fn declares(self, number: u32) -> Option<Self> {
        match (self, number) {
            (Self::File, 4) | (Self::Message, 3) => Some(Self::Message),
            (Self::File, 6) => Some(Self::Service),
            (Self::File, 5 | 7) | (Self::Message, 2 | 4 | 6 | 8) | (Self::Service, 2) => {
                Some(Self::Leaf)
            }
            _ => None,
        }
    }
}

/// Returns the full name of a declaration, whose first field is its name.
fn full_name(within: &str, declared: &'static [u8]) -> Result<String, Malformed> {
    let mut name = "";
    let mut fields = Reader::new(declared);
    while let Some((number, value)) = fields.field()? {
        if number == 1 {
            name = value.text()?;
        }
    }
    Ok(if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_services_are_listed() {
        let services = [
            "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "kuadrant.service.ratelimit.v1.RateLimitService",
        ];
        assert_eq!(INDEX.services, services);
        for symbol in [
            "envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",
            "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit",
            "envoy.service.rate_limit_quota.v3.BucketId",
            "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.hits_addend",
            "google.protobuf.Duration",
            "kuadrant.service.ratelimit.v1.RateLimitService.Commit",
            "kuadrant.service.ratelimit.v1.CommitRequest.reservation_id",
        ] {
            assert!(INDEX.symbols.contains_key(symbol), "{symbol}");
        }
    }

    #[test]
    fn whatever_a_file_imports_is_there() {
        for (name, file) in &INDEX.files {
            let mut fields = Reader::new(file);
            while let Some((number, value)) = fields.field().unwrap() {
                if number == 3 {
                    let imported = value.text().unwrap();
                    assert!(INDEX.files.contains_key(imported), "{name} imports {imported}");
                }
            }
        }
    }
}
