//! The data of `rategate top`: the rules by `GET /v1/rules`, the keys of one by `GET /v1/top`.

use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::http::Client;
use super::wire::{in_path, read, send};
use crate::failure::Failure;
use crate::service::top::{Key, Overview, Row};

/// The maximum number of keys of a rule that are shown.
const MAX_KEYS: usize = 10;

/// The name shown for the only counter of a rule without keys.
const ONE_COUNTER: &str = "(all)";

/// The current rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rules {
    rules: Vec<Live>,
}

/// A rule and its current figures.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Live {
    name: String,
    envoy_name: Option<String>,
    limit: String,
    sentence: String,
    /// The figures of the newest complete second.
    second: Figures,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Figures {
    passed: u64,
    denied: u64,
    /// Calls over the limit of a rule that is not enforced: they passed.
    shadow_denied: u64,
}

/// The top keys of a rule.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tops {
    used: Ranks,
    denied: Ranks,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ranks {
    keys: Vec<Ranked>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ranked {
    key: String,
    at_most: u64,
}

/// Returns all rules, in the service's order, without the rows that stand for several.
pub(crate) fn rules(client: &mut Client) -> Result<Vec<Row>, Failure> {
    // Such a row has a name that no rule could have.
    let is_one = |row: &Row| !row.name.starts_with('*');
    Ok(rows(client)?.into_iter().filter(is_one).collect())
}

fn rows(client: &mut Client) -> Result<Vec<Row>, Failure> {
    let rules: Rules = get(client, "/v1/rules")?;
    Ok(rules.rules.into_iter().map(Live::row).collect())
}

fn get<T: DeserializeOwned>(client: &mut Client, path: &str) -> Result<T, Failure> {
    let answer = send(client, &Method::GET, path, b"")?;
    read(client, &answer)
}

fn tops<T: DeserializeOwned>(client: &mut Client, rule: &str) -> Result<T, Failure> {
    get(client, &format!("/v1/top?rule={}", in_path(rule)))
}

/// Returns all rules, and the keys of the one named.
pub(crate) fn overview(client: &mut Client, rule: Option<&str>) -> Result<Overview, Failure> {
    let rules = rows(client)?;
    let is_there = |name: &&str| rules.iter().any(|row| row.name == **name);
    let Some(name) = rule.filter(is_there) else {
        return Ok(Overview { rules, keys_of: None, keys: Vec::new() });
    };
    let tops: Tops = tops(client, name)?;
    Ok(Overview { rules, keys_of: Some(name.to_owned()), keys: tops.keys() })
}

/// Returns the replies unchanged, with the keys of all rules.
pub(crate) fn raw(client: &mut Client) -> Result<Value, Failure> {
    let rules: Value = get(client, "/v1/rules")?;
    let mut top = serde_json::Map::new();
    for Row { name, .. } in self::rules(client)? {
        let tops = tops(client, &name)?;
        top.insert(name, tops);
    }
    Ok(serde_json::json!({ "rules": rules, "top": top }))
}

impl Live {
    fn row(self) -> Row {
        let Self { name, envoy_name: given, limit, sentence, second } = self;
        let granted = second.passed.saturating_add(second.shadow_denied);
        let arrivals = granted.saturating_add(second.denied);
        Row { name, given, limit, sentence, arrivals, granted, denied: second.denied }
    }
}

impl Tops {
    /// Returns the denied keys first, then those with the highest use.
    fn keys(self) -> Vec<Key> {
        let denied = self.denied.keys.into_iter();
        let mut keys: Vec<Key> = denied
            .map(|Ranked { key, at_most }| Key { name: key, used: 0, denied: at_most })
            .collect();
        for Ranked { key, at_most } in self.used.keys {
            match keys.iter_mut().find(|known| known.name == key) {
                Some(known) => known.used = at_most,
                None => keys.push(Key { name: key, used: at_most, denied: 0 }),
            }
        }
        // A rule without values has one counter, without a name.
        for key in keys.iter_mut().filter(|key| key.name.is_empty()) {
            ONE_COUNTER.clone_into(&mut key.name);
        }
        keys.truncate(MAX_KEYS);
        keys
    }
}

#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic in a test is a failed test"
)]
mod tests {
    use super::{Rules, Tops};

    #[test]
    fn what_is_unknown_or_missing_is_no_matter() {
        let text = r#"{"rules":[{"name":"a","envoy_name":"b",
            "second":{"passed":5,"denied":2,"shadow_denied":1},"new":{}}],"x":1}"#;
        let rules: Rules = serde_json::from_str(text).unwrap();
        let row = rules.rules.into_iter().next().unwrap().row();
        assert_eq!((row.arrivals, row.granted, row.denied), (8, 6, 2));
        assert_eq!(row.shown(), "a (b)");
        assert!(serde_json::from_str::<Rules>("{}").unwrap().rules.is_empty());
    }

    #[test]
    fn keys_that_were_denied_come_first() {
        let text = r#"{"used":{"keys":[{"key":"a","at_most":9},{"key":"b","at_most":5}]},
            "denied":{"keys":[{"key":"b","at_most":3}]}}"#;
        let keys = serde_json::from_str::<Tops>(text).unwrap().keys();
        let keys: Vec<_> =
            keys.iter().map(|key| (key.name.as_str(), key.used, key.denied)).collect();
        assert_eq!(keys, [("b", 5, 3), ("a", 9, 0)]);
        let text = r#"{"used":{"keys":[{"key":"","at_most":9}]}}"#;
        assert_eq!(serde_json::from_str::<Tops>(text).unwrap().keys()[0].name, "(all)");
    }
}
