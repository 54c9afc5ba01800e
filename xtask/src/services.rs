//! The descriptors that the service's reflection answers with: written from the packages whose
//! clients its tests use, and compared with what is in the repository.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, BytesMut};
use rategate_protocol::protobuf::{Malformed, Reader, Value, put_bytes, put_varint};

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
const SERVICES: [&str; 5] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "health.proto",
    "reflection_v1.proto",
    "reflection_v1alpha.proto",
];

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
