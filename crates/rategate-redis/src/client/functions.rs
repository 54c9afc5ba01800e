//! Comparison of a server's functions with those of this program.

use super::connection::{Connection, Failure};
use super::slots::text;
use crate::refusal::Remedy;
use crate::reply::Value;

/// Loads the functions, unless the server has those of this program, byte for byte.
///
/// A library of the same name but another source is replaced. A server that lacks functions, or
/// does not allow this user to list them, is left as it is.
pub(crate) async fn check(connection: &Connection) -> Result<(), Failure> {
    let library = connection.library();
    let name = library.name();
    let words = ["FUNCTION", "LIST", "LIBRARYNAME", name.as_str(), "WITHCODE"];
    match connection.send(&words).await {
        Ok(listing) if code_of(&listing).as_deref() == Some(library.source().as_str()) => Ok(()),
        // A server that refuses writes reports that to the first call.
        Ok(_) => match connection.load().await {
            Err(Failure::Lost(why)) => Err(Failure::Lost(why)),
            _ => Ok(()),
        },
        Err(Failure::Refused { refusal, .. }) if refusal.remedy() != Remedy::RefreshThenRetry => {
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the source of the only library in a reply to `FUNCTION LIST`.
fn code_of(listing: &Value) -> Option<String> {
    let Value::List(libraries) = listing else { return None };
    let Value::List(words) = libraries.first()? else { return None };
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().find(|[name, _]| text(name) == "library_code").map(|[_, code]| text(code))
}
