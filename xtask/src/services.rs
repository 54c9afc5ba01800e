//! The descriptors that the service's reflection answers with: written from the packages whose
//! clients its tests use, and compared with what is in the repository. No package has those of
//! Kuadrant's service, which are written here.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, BytesMut};
use rategate_protocol::protobuf::{Malformed, Reader, Value, put_bytes, put_integer, put_varint};

/// The file in the repository, a `FileDescriptorSet`.
const FILE: &str = "crates/rategate-server/src/protocol/grpc/services.bin";

/// The packages and their files with descriptors: as they are, or as the text of a Rust constant.
const SOURCES: [(&str, &str); 4] = [
    ("envoy-types", "src/generated/types.bin"),
    ("tonic-health", "src/generated/grpc_health_v1_fds.rs"),
    ("tonic-reflection", "src/generated/reflection_v1_fds.rs"),
    ("tonic-reflection", "src/generated/reflection_v1alpha1_fds.rs"),
];

/// The files that declare the services. All files that they import follow from these.
const SERVICES: [&str; 6] = [
    "envoy/service/ratelimit/v3/rls.proto",
    KUADRANT,
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "health.proto",
    "reflection_v1.proto",
    "reflection_v1alpha.proto",
];

/// The file of Kuadrant's service.
const KUADRANT: &str = "kuadrantrls.proto";

/// The fields of `FileDescriptorProto` that are read: its name, its imports, and its comments,
/// which are left out.
const NAME: u32 = 1;
const IMPORT: u32 = 3;
const COMMENTS: u32 = 9;

/// Writes the descriptors.
pub(crate) fn write(root: &Path) -> Result<()> {
    let set = descriptors(root)?;
    std::fs::write(root.join(FILE), &set).context(FILE)?;
    println!("{FILE}: {} bytes", set.len());
    Ok(())
}

/// Checks that the descriptors in the repository are those of the packages.
pub(crate) fn check(root: &Path) -> Result<()> {
    let set = descriptors(root)?;
    let is_current = std::fs::read(root.join(FILE)).context(FILE)? == *set;
    ensure!(is_current, "{FILE} is not current: run `cargo xtask services`");
    println!("{FILE} is current: {} bytes", set.len());
    Ok(())
}

fn descriptors(root: &Path) -> Result<BytesMut> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).exec();
    let metadata = metadata.context("cargo metadata")?;
    let mut files = BTreeMap::new();
    for (package, path) in SOURCES {
        let found = metadata.packages.iter().find(|other| *other.name == package);
        let found = found.with_context(|| format!("the lock file has no package {package}"))?;
        let path = found.manifest_path.with_file_name("").join(path);
        let mut set = std::fs::read(&path).with_context(|| path.to_string())?;
        if path.extension() == Some("rs") {
            set = constant(&String::from_utf8(set)?).with_context(|| path.to_string())?;
        }
        let read = read(&set, &mut files);
        read.map_err(|Malformed(why)| anyhow::anyhow!("{path}: {why}"))?;
    }
    let mut own = BytesMut::new();
    put_bytes(&mut own, 1, &kuadrant());
    read(&own, &mut files).map_err(|Malformed(why)| anyhow::anyhow!("{KUADRANT}: {why}"))?;
    let mut order = Vec::new();
    for name in SERVICES {
        visit(name, &files, &mut order)?;
    }
    let mut out = BytesMut::new();
    for name in order {
        put_bytes(&mut out, 1, &files[&name].content);
    }
    Ok(out)
}

/// The types of fields, by their numbers in a descriptor.
const UINT64: u64 = 4;
const BOOL: u64 = 8;
const STRING: u64 = 9;
const MESSAGE: u64 = 11;
const ENUM: u64 = 14;

/// A field: its name, its type, and the full name of that type if it is declared somewhere.
type Field = (&'static str, u64, &'static str);

const DESCRIPTORS: Field =
    ("descriptors", MESSAGE, ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor");

/// The messages of Kuadrant's service, whose fields have the numbers from 1.
const MESSAGES: [(&str, &[Field]); 4] = [
    (
        "ReserveRequest",
        &[
            ("domain", STRING, ""),
            DESCRIPTORS,
            ("amount", UINT64, ""),
            ("ttl", MESSAGE, ".google.protobuf.Duration"),
        ],
    ),
    (
        "ReserveResponse",
        &[
            ("code", ENUM, ".envoy.service.ratelimit.v3.RateLimitResponse.Code"),
            ("reservation_id", STRING, ""),
        ],
    ),
    (
        "CommitRequest",
        &[
            ("domain", STRING, ""),
            DESCRIPTORS,
            ("reservation_id", STRING, ""),
            ("actual_amount", UINT64, ""),
        ],
    ),
    ("CommitResponse", &[("reservation_released", BOOL, "")]),
];

/// The methods of Kuadrant's service, with the packages and the starts of the names of their
/// messages.
const METHODS: [(&str, &str); 4] = [
    ("CheckRateLimit", ".envoy.service.ratelimit.v3.RateLimit"),
    ("Report", ".envoy.service.ratelimit.v3.RateLimit"),
    ("Reserve", ".kuadrant.service.ratelimit.v1.Reserve"),
    ("Commit", ".kuadrant.service.ratelimit.v1.Commit"),
];

/// Returns the `FileDescriptorProto` of Kuadrant's service.
fn kuadrant() -> BytesMut {
    let mut file = BytesMut::new();
    put_bytes(&mut file, 1, KUADRANT.as_bytes());
    put_bytes(&mut file, 2, b"kuadrant.service.ratelimit.v1");
    for import in [
        "envoy/service/ratelimit/v3/rls.proto",
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "google/protobuf/duration.proto",
    ] {
        put_bytes(&mut file, 3, import.as_bytes());
    }
    for (name, fields) in MESSAGES {
        let mut message = BytesMut::new();
        put_bytes(&mut message, 1, name.as_bytes());
        for (field, number) in fields.iter().zip(1..) {
            put_bytes(&mut message, 2, &field_descriptor(*field, number));
        }
        put_bytes(&mut file, 4, &message);
    }
    let mut service = BytesMut::new();
    put_bytes(&mut service, 1, b"RateLimitService");
    for (name, messages) in METHODS {
        let mut method = BytesMut::new();
        put_bytes(&mut method, 1, name.as_bytes());
        put_bytes(&mut method, 2, format!("{messages}Request").as_bytes());
        put_bytes(&mut method, 3, format!("{messages}Response").as_bytes());
        put_bytes(&mut service, 2, &method);
    }
    put_bytes(&mut file, 6, &service);
    put_bytes(&mut file, 12, b"proto3");
    file
}

/// Returns the `FieldDescriptorProto` of a field.
fn field_descriptor((name, kind, declared): Field, number: u64) -> BytesMut {
    let is_repeated = name == DESCRIPTORS.0;
    let mut field = BytesMut::new();
    put_bytes(&mut field, 1, name.as_bytes());
    put_integer(&mut field, 3, number);
    put_integer(&mut field, 4, if is_repeated { 3 } else { 1 });
    put_integer(&mut field, 5, kind);
    if !declared.is_empty() {
        put_bytes(&mut field, 6, declared.as_bytes());
    }
    field
}

/// A file without its comments, and the names of its imports.
struct File {
    content: BytesMut,
    imports: Vec<String>,
}

/// Adds the files of a `FileDescriptorSet`.
fn read(set: &[u8], files: &mut BTreeMap<String, File>) -> Result<(), Malformed> {
    let mut fields = Reader::new(set);
    while let Some((_, file)) = fields.field()? {
        let (mut name, mut imports, mut content) = ("", Vec::new(), BytesMut::new());
        let mut fields = Reader::new(file.bytes()?);
        while let Some((number, value)) = fields.field()? {
            let small = u8::try_from(number).ok().filter(|number| *number < 16);
            let small = small.ok_or(Malformed("a file has a field of an unknown number"))?;
            match (number, value) {
                (COMMENTS, _) => {}
                (_, Value::Bytes(bytes)) => put_bytes(&mut content, small, bytes),
                (_, value) => {
                    content.put_u8(small << 3);
                    put_varint(&mut content, value.integer()?);
                }
            }
            match number {
                NAME => name = value.text()?,
                IMPORT => imports.push(value.text()?.to_owned()),
                _ => {}
            }
        }
        files.insert(name.to_owned(), File { content, imports });
    }
    Ok(())
}

/// Adds a file after all that it imports.
fn visit(name: &str, files: &BTreeMap<String, File>, order: &mut Vec<String>) -> Result<()> {
    if order.iter().any(|other| other == name) {
        return Ok(());
    }
    let Some(file) = files.get(name) else { bail!("no package has {name}") };
    for import in &file.imports {
        visit(import, files, order)?;
    }
    order.push(name.to_owned());
    Ok(())
}

/// Reads a constant of bytes: `pub const NAME: &[u8] = &[10u8, 76u8];`.
fn constant(text: &str) -> Result<Vec<u8>> {
    let (_, list) = text.split_once("= &[").context("no constant of bytes")?;
    let (list, _) = list.split_once(']').context("a constant without an end")?;
    let bytes = list.split(',').map(|byte| byte.trim().trim_end_matches("u8"));
    bytes.filter(|byte| !byte.is_empty()).map(|byte| Ok(byte.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::constant;

    #[test]
    fn reads_a_constant() {
        let text = "// A comment.\npub const SET: &[u8] = &[\n    10u8,\n    255u8, 7u8,\n];\n";
        assert_eq!(constant(text).unwrap(), [10, 255, 7]);
        assert!(constant("pub const SET: &[u8] = &[256u8];").is_err());
    }
}
