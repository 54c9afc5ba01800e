//! The forms of our own commands, for a wrong number of words.

use crate::protocol::resp::RespWriter;

/// The words behind the name of each command that Redis does not have.
const FORMS: [(&str, &str); 13] = [
    ("CHECK", "[once|-] rule permits [value ...]"),
    ("PEEK", "rule permits [value ...]"),
    ("CHARGE", "[once|-] rule permits [value ...]"),
    ("REFUND", "[once|-] rule permits [value ...]"),
    ("LEASE", "TAKE|RENEW|RELEASE name rule permits [value ...]"),
    ("LEASE|TAKE", "name|* rule permits [value ...]"),
    ("LEASE|RENEW", "name rule permits [value ...]"),
    ("LEASE|RELEASE", "[SERVED|DROPPED|IGNORED] name rule permits [value ...]"),
    (
        "RESERVE",
        "id|* ttl_ms|- rule permits [value ...], \
         or id|* ttl_ms|- ITEMS n rule permits n_values value ... for n items",
    ),
    (
        "COMMIT",
        "id rule permits [value ...], \
         or id ITEMS n rule permits n_values value ... for n items",
    ),
    (
        "CANCEL",
        "id rule [value ...], \
         or id ITEMS n rule n_values value ... for n items",
    ),
    ("RESET", "rule [value ...]"),
    ("EXPLAIN", "rule"),
];

/// Writes the error for a wrong number of words, as Redis does; of our own commands with their
/// form.
pub(super) fn argument_count_error(name: &str, reply: &mut RespWriter<'_>) {
    let own = name.to_ascii_uppercase();
    let own = own.strip_prefix("RATEGATE.").unwrap_or_default();
    let form = FORMS.iter().find(|(command, _)| *command == own);
    let form = form.map_or_else(String::new, |(command, form)| {
        format!("; write RATEGATE.{} {form}", command.replace('|', " "))
    });
    let name = name.to_ascii_lowercase();
    reply.error(&format!("ERR wrong number of arguments for '{name}' command{form}"));
}
